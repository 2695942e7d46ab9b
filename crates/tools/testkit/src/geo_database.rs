//! Writes a database of places in the format MaxMind DB 2.0.

use serde_json::{Value, json};

/// A database of this kind, such as `GeoLite2-Country`, with a record for each network. Networks of IPv4 are in `::/96`, as MaxMind
/// has them. A record for a part of an earlier network replaces it there.
pub fn geo_database(kind: &str, networks: &[(&str, Value)]) -> Vec<u8> {
    let mut tree = vec![[TreeRecord::Empty; 2]];
    let mut data = Vec::new();
    for (network, record) in networks {
        let offset = data.len();
        encode(record, &mut data);
        insert(&mut tree, network, TreeRecord::Data(offset));
    }
    let count = tree.len();
    let mut file = Vec::new();
    for record in tree.iter().flatten() {
        let value = match record {
            TreeRecord::Empty => count,
            TreeRecord::Node(node) => *node,
            TreeRecord::Data(offset) => count + 16 + offset,
        };
        file.extend(u32::try_from(value).unwrap().to_be_bytes());
    }
    file.extend([0; 16]);
    file.extend(data);
    file.extend(b"\xab\xcd\xefMaxMind.com");
    let metadata = json!({
        "node_count": count,
        "record_size": 32,
        "ip_version": 6,
        "database_type": kind,
        "languages": ["en"],
        "binary_format_major_version": 2,
        "binary_format_minor_version": 0,
        "build_epoch": 1_700_000_000,
        "description": {"en": "a test"},
    });
    encode(&metadata, &mut file);
    file
}

#[derive(Clone, Copy)]
enum TreeRecord {
    Empty,
    Node(usize),
    Data(usize),
}

fn insert(tree: &mut Vec<[TreeRecord; 2]>, network: &str, record: TreeRecord) {
    let (address, bits) = network.split_once('/').unwrap();
    let bits: u32 = bits.parse().unwrap();
    let (address, bits) = match address.parse().unwrap() {
        std::net::IpAddr::V4(ip) => (u128::from(ip.to_bits()), bits + 96),
        std::net::IpAddr::V6(ip) => (ip.to_bits(), bits),
    };
    let mut node = 0;
    for depth in 0..bits {
        let side = usize::try_from(address >> (127 - depth) & 1).unwrap();
        if depth + 1 == bits {
            tree[node][side] = record;
            return;
        }
        node = match tree[node][side] {
            TreeRecord::Node(next) => next,
            known => {
                tree.push([known; 2]);
                tree[node][side] = TreeRecord::Node(tree.len() - 1);
                tree.len() - 1
            }
        };
    }
}

/// The data section: a control byte with type and size, then the value.
fn encode(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Object(map) => {
            control(7, map.len(), out);
            for (key, value) in map {
                encode(&Value::from(key.as_str()), out);
                // Readers expect these types of the fields of the metadata.
                match (key.as_str(), value.as_u64()) {
                    ("build_epoch", Some(number)) => {
                        control(9, 8, out);
                        out.extend(number.to_be_bytes());
                    }
                    (
                        "record_size"
                        | "ip_version"
                        | "binary_format_major_version"
                        | "binary_format_minor_version",
                        Some(number),
                    ) => {
                        control(5, 2, out);
                        out.extend(u16::try_from(number).unwrap().to_be_bytes());
                    }
                    _ => encode(value, out),
                }
            }
        }
        Value::Array(items) => {
            control(11, items.len(), out);
            items.iter().for_each(|item| encode(item, out));
        }
        Value::String(text) => {
            control(2, text.len(), out);
            out.extend(text.as_bytes());
        }
        number => {
            control(6, 4, out);
            out.extend(
                u32::try_from(number.as_u64().unwrap())
                    .unwrap()
                    .to_be_bytes(),
            );
        }
    }
}

fn control(kind: u8, size: usize, out: &mut Vec<u8>) {
    let (short, long) = match size {
        0..29 => (size, None),
        _ => (29, Some(size - 29)),
    };
    let short = u8::try_from(short).unwrap();
    // Types behind 7 are extended: theirs is in the next byte.
    if kind > 7 {
        out.extend([short, kind - 7]);
    } else {
        out.push(kind << 5 | short);
    }
    out.extend(long.map(|long| u8::try_from(long).unwrap()));
}
