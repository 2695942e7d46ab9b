//! The qlog files of both ends of a transfer.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::settings::QuicSettings;
use crate::simulation::path::PathSettings;
use crate::simulation::transfer::Transfer;

fn transfer(qlog: Option<&Path>) -> Transfer {
    Transfer {
        path: PathSettings {
            round_trip: Duration::from_millis(20),
            rate: 12_500_000.0,
            queue: 250_000.0,
            loss: 0.02,
            reordering: 0.0,
            duplication: 0.0,
        },
        settings: QuicSettings {
            qlog: qlog.map(Path::to_owned),
            ..QuicSettings::default()
        },
        body: 1 << 20,
        seed: 1,
    }
}

/// The records of the file whose name has this end, and the rest of the name.
fn records(folder: &Path, end: &str) -> (String, Vec<Value>) {
    let mut files = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let path = files
        .find(|path| path.to_str().unwrap().ends_with(end))
        .unwrap();
    let text = fs::read_to_string(&path).unwrap();
    let records = text
        .split_terminator('\n')
        .map(|line| serde_json::from_str(line.strip_prefix('\u{1e}').unwrap()).unwrap());
    let name = path.file_name().unwrap().to_str().unwrap();
    (name.replace(end, ""), records.collect())
}

fn named<'a>(records: &'a [Value], name: &str) -> Vec<&'a Value> {
    records
        .iter()
        .filter(|record| record["name"] == name)
        .map(|record| &record["data"])
        .collect()
}

/// The types and numbers of packets.
fn numbers(packets: &[&Value]) -> BTreeSet<(String, u64)> {
    packets
        .iter()
        .map(|packet| {
            let header = &packet["header"];
            let kind = header["packet_type"].as_str().unwrap().to_owned();
            (kind, header["packet_number"].as_u64().unwrap())
        })
        .collect()
}

#[test]
fn qlog_files_of_both_ends_have_each_packet_of_a_handshake_and_each_loss() {
    let folder = tempfile::tempdir().unwrap();
    let outcome = transfer(Some(folder.path())).run();
    let (client_id, client) = records(folder.path(), "_client.sqlog");
    let (server_id, server) = records(folder.path(), "_server.sqlog");
    assert_eq!(client_id, server_id);
    for (records, end) in [(&client, "client"), (&server, "server")] {
        let header = &records[0];
        assert_eq!(
            header["file_schema"],
            "urn:ietf:params:qlog:file:sequential"
        );
        assert_eq!(header["serialization_format"], "application/qlog+json-seq");
        assert_eq!(header["trace"]["vantage_point"]["type"], end);
        assert_eq!(header["trace"]["common_fields"]["group_id"], *client_id);
        assert_eq!(records[1]["name"], "quic:connection_started");
        assert_eq!(
            named(records, "quic:version_information")[0]["chosen_version"],
            "00000001"
        );
        let times: Vec<f64> = records[1..]
            .iter()
            .map(|record| record["time"].as_f64().unwrap())
            .collect();
        assert!(times.is_sorted());
        assert_eq!(named(records, "quic:parameters_set").len(), 2);
        assert_eq!(
            named(records, "quic:congestion_state_updated")[0]["new"],
            "slow_start"
        );
        let keys = named(records, "quic:key_updated");
        assert_eq!(keys[0]["key_type"], "client_handshake_secret");
        assert_eq!(keys[3]["key_type"], "server_1rtt_secret");
        assert!(named(records, "loglevel:warning").is_empty());
    }
    let sent = named(&server, "quic:packet_sent");
    assert_eq!(sent.len() as u64, outcome.sent);
    let lost = named(&server, "quic:packet_lost");
    let lost_data = lost
        .iter()
        .filter(|packet| packet["is_mtu_probe_packet"] == false);
    assert_eq!(lost_data.count() as u64, outcome.lost);
    assert!(outcome.lost > 0);
    assert!(numbers(&lost).is_subset(&numbers(&sent)));
    for (from, to) in [(&server, &client), (&client, &server)] {
        let sent = numbers(&named(from, "quic:packet_sent"));
        let received = numbers(&named(to, "quic:packet_received"));
        assert!(!received.is_empty() && received.is_subset(&sent));
        for kind in ["initial", "handshake", "1RTT"] {
            assert!(received.iter().any(|(own, _)| own == kind), "{kind}");
        }
    }
    let frames: BTreeSet<&str> = sent
        .iter()
        .flat_map(|packet| packet["frames"].as_array().unwrap())
        .map(|frame| frame["frame_type"].as_str().unwrap())
        .collect();
    for frame in [
        "ack",
        "crypto",
        "handshake_done",
        "new_connection_id",
        "stream",
    ] {
        assert!(frames.contains(frame), "{frame} of {frames:?}");
    }
    let metrics = named(&server, "quic:recovery_metrics_updated");
    let last = metrics.last().unwrap();
    assert!(last["smoothed_rtt"].as_f64().unwrap() >= 20.0, "{last}");
}

/// What is observed must not change what is sent.
#[test]
fn a_transfer_with_qlog_has_the_packets_of_one_without() {
    let folder = tempfile::tempdir().unwrap();
    let with = transfer(Some(folder.path())).run();
    let without = transfer(None).run();
    assert_eq!(
        (with.time, with.sent, with.lost),
        (without.time, without.sent, without.lost)
    );
}
