//! Structs that are no rows of a table.

use apus::sql::Model;

#[derive(Clone, Model)]
enum Kind { //~ a model is a struct with named fields
    One,
}

#[derive(Clone, Model)]
struct Pair(i64, String); //~ a model is a struct with named fields

#[derive(Clone, Model)]
struct Generic<T> { //~ a model has no parameters
    id: i64,
    value: T,
}

#[derive(Clone, Model)]
struct NoKey { //~ a model has a key: a field `id`, or one with `#[model(key)]`
    name: String,
}

#[derive(Clone, Model)]
struct TwoKeys {
    #[model(key)]
    one: i64,
    #[model(key)]
    other: i64, //~ a model has one key
}

#[derive(Clone, Model)]
struct Unknown {
    id: i64,
    #[model(columm = "name")] //~ a field of a model takes `key`, `assigned`, `skip` and `column = ".."`
    name: String,
}

#[derive(Clone, Model)]
#[model(table = "a; DROP TABLE b")] //~ the name of a table or a column has letters, digits and underscores
struct Injected {
    id: i64,
}

#[derive(Clone, Model)]
struct SkippedKey {
    #[model(skip, key)]
    id: i64, //~ a field that is skipped is no column
}

#[derive(Clone, Model)]
struct Assigned {
    id: i64,
    #[model(assigned)]
    name: String, //~ `assigned` is for the key
}

fn main() {}
