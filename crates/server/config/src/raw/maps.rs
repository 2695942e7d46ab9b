//! The keys of maps.

use crate::keys::keys;
use crate::value::{FilePath, Map, Text};

keys! {
    /// A map: a value from a value of the request, as `map` and `geo` of nginx. Conditions have it as `map.NAME`, templates as `$map_NAME`,
    /// and limits as `key = "map.NAME"`.
    pub(crate) struct GlobalMap {
        /// The fact of the request that the value comes from: `"client"`, `"host"`, `"path"`, `"header.x-api-key"`, `"user"`, or `"map.OTHER"`, the
        /// value of another map.
        from [required]: Text,
        /// The value of requests that no key is for. Without it, they have none.
        default: Text,
        /// Keys and their values. From `client`, a key is a network, and the longest prefix decides. From hosts, it is a name as
        /// `server_name` has them. From other facts, it is the whole text, byte for byte. `"~..."` is a regular expression, `"~*..."` one without
        /// regard to case; the first that matches decides where no other key does. `""` is for requests without the fact. A key that
        /// begins with `~` is written `'\~...'`.
        values: Map<Text, Text> = Map::default(),
        /// A file with further keys: a key and its value on each line, with white space between them, and comments behind `#`. It is read
        /// again when it changes.
        file: FilePath,
    }
}
