//! Values that do not fit the columns of models, and types that are none of columns.

use apus::sql::{Db, Model, Related};

#[derive(Clone, Model)]
struct User {
    id: i64,
    name: String,
}

#[derive(Clone, Model)]
struct Post {
    id: i64,
    user_id: i64,
    title: String,
}

#[derive(Clone, Model)]
struct Dated {
    id: i64,
    at: std::time::SystemTime, //~ `SystemTime` cannot be the value of a column
}

struct Plain;

async fn queries(db: &Db, users: Vec<User>) {
    let _ = User::find_by(db, User::NAME, 7_i64).await; //~ From<i64>
    let _ = User::query().filter(Post::TITLE.eq("a")); //~ mismatched types
    let _ = users.has_many(db, Post::TITLE).await; //~ ForeignKey<i64>
    let _ = User::find("sqlite:a.db", 1).await; //~ does not run the statements of a model
    let _: Vec<Option<Plain>> = Vec::<Post>::new().belongs_to(db, Post::USER_ID).await.unwrap(); //~ `Plain` is no model
}

fn main() {}
