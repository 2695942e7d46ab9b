//! `#[derive(Model)]`.

use apus_database::sqlx;
use apus_database::{Db, Migrations, Model, Related, migrations};
use apus_testkit::{EmptyDatabase, block_on};

use crate::harness::open;

const MIGRATIONS: Migrations = migrations!("tests/it/migrations");

#[derive(Clone, Debug, Default, PartialEq, Model)]
#[model(crate = "apus_database")]
struct Author {
    id: i64,
    name: String,
    email: Option<String>,
    score: f64,
    is_active: bool,
    #[model(skip)]
    remembered: u8,
}

#[derive(Clone, Debug, PartialEq, Model)]
#[model(crate = "apus_database", table = "articles")]
struct Text {
    id: i64,
    author_id: i64,
    #[model(column = "editor")]
    editor_id: Option<i64>,
    title: String,
}

#[derive(Clone, Debug, PartialEq, Model)]
#[model(crate = "apus_database")]
struct Country {
    #[model(key)]
    code: String,
    name: String,
}

fn author(name: &str, score: f64) -> Author {
    Author {
        name: name.to_owned(),
        score,
        ..Author::default()
    }
}

async fn text(db: &Db, author_id: i64, editor_id: Option<i64>, title: &str) -> Text {
    let text = Text {
        id: 0,
        author_id,
        editor_id,
        title: title.to_owned(),
    };
    text.insert(db).await.unwrap()
}

/// Runs a test on an empty database of each system.
fn on_each(run: impl AsyncFn(&Db)) {
    for fresh in EmptyDatabase::of_each() {
        let db = open(&fresh);
        db.migrate(MIGRATIONS).unwrap();
        block_on(run(&db));
    }
}

#[test]
fn rows_are_inserted_found_changed_and_deleted() {
    on_each(async |db| {
        let ada = author("Ada", 1.5).insert(db).await.unwrap();
        let mut grace = author("Grace's ?", 2.0).insert(db).await.unwrap();
        assert!(ada.id > 0 && grace.id > ada.id);
        assert_eq!(Author::find(db, ada.id).await.unwrap(), Some(ada.clone()));
        assert_eq!(Author::find(db, 99).await.unwrap(), None);
        let found = Author::find_by(db, Author::NAME, "Grace's ?").await;
        assert_eq!(found.unwrap(), Some(grace.clone()));
        grace.email = Some("grace@example.com".to_owned());
        grace.is_active = true;
        assert!(grace.update(db).await.unwrap());
        // Also if nothing changes.
        assert!(grace.update(db).await.unwrap());
        let all = Author::all(db).await.unwrap();
        assert_eq!(all, [ada.clone(), grace.clone()]);
        assert!(ada.delete(db).await.unwrap());
        assert!(!ada.delete(db).await.unwrap());
        assert!(!ada.update(db).await.unwrap());
        assert_eq!(Author::all(db).await.unwrap(), [grace]);
    });
}

#[test]
fn a_key_that_the_program_chooses_is_inserted_as_it_is() {
    on_each(async |db| {
        let chile = Country {
            code: "cl".to_owned(),
            name: "Chile".to_owned(),
        };
        assert_eq!(chile.clone().insert(db).await.unwrap(), chile);
        let again = chile.clone().insert(db).await.unwrap_err();
        assert!(again.as_database_error().unwrap().is_unique_violation());
        assert_eq!(Country::find(db, "cl").await.unwrap(), Some(chile));
    });
}

#[test]
fn queries_filter_sort_and_have_pages() {
    on_each(async |db| {
        for (name, score) in [("a", 3.0), ("b", 1.0), ("c", 2.0), ("d", 2.0), ("e", 0.5)] {
            author(name, score).insert(db).await.unwrap();
        }
        let names = |rows: Vec<Author>| rows.into_iter().map(|row| row.name).collect::<String>();
        let query = Author::query;
        let sorted = query().order_by(Author::SCORE.desc()).all(db).await;
        assert_eq!(names(sorted.unwrap()), "acdbe");
        let some = query()
            .filter(Author::SCORE.ge(1.0).and(Author::NAME.ne("b")))
            .filter(Author::NAME.like("a").or(Author::NAME.one_of(["c", "e"])))
            .all(db);
        assert_eq!(names(some.await.unwrap()), "ac");
        let none = query().filter(Author::NAME.one_of([""; 0])).all(db);
        assert!(none.await.unwrap().is_empty());
        let without = query().filter(Author::EMAIL.eq(None)).count(db);
        assert_eq!(without.await.unwrap(), 5);
        let with = query().filter(Author::EMAIL.ne(None)).count(db);
        assert_eq!(with.await.unwrap(), 0);
        let first = query().filter(Author::SCORE.lt(1.0)).first(db).await;
        assert_eq!(first.unwrap().unwrap().name, "e");
        let rest = query().offset(3).all(db).await;
        assert_eq!(names(rest.unwrap()), "de");
        let page = query().order_by(Author::SCORE.desc()).page(db, 2, 2);
        let page = page.await.unwrap();
        assert_eq!((page.number, page.total, page.pages()), (2, 5, 3));
        assert_eq!(names(page.items), "db");
        let beyond = query().page(db, u64::MAX, u64::MAX).await.unwrap();
        assert!(beyond.items.is_empty() && beyond.total == 5);
        let removed = query().filter(Author::SCORE.gt(1.0)).delete(db);
        assert_eq!(removed.await.unwrap(), 3);
        assert_eq!(names(Author::all(db).await.unwrap()), "be");
    });
}

#[test]
fn the_rows_of_a_relation_are_loaded_by_one_statement() {
    on_each(async |db| {
        let ada = author("Ada", 0.0).insert(db).await.unwrap();
        let bob = author("Bob", 0.0).insert(db).await.unwrap();
        let cem = author("Cem", 0.0).insert(db).await.unwrap();
        let one = text(db, ada.id, Some(bob.id), "one").await;
        let two = text(db, cem.id, None, "two").await;
        let three = text(db, ada.id, Some(99), "three").await;
        // One twice, as a list of joined rows has it.
        let authors = [ada.clone(), bob.clone(), cem.clone(), ada.clone()];
        let written = authors.has_many(db, Text::AUTHOR_ID).await.unwrap();
        let of_ada = vec![one.clone(), three.clone()];
        assert_eq!(written, [of_ada.clone(), vec![], vec![two.clone()], of_ada]);
        let edited = authors.has_many(db, Text::EDITOR_ID).await.unwrap();
        assert_eq!(edited, [vec![], vec![one.clone()], vec![], vec![]]);
        let texts = [one, two, three];
        let found: Vec<Option<Author>> = texts.belongs_to(db, Text::AUTHOR_ID).await.unwrap();
        assert_eq!(found, [Some(ada.clone()), Some(cem), Some(ada)]);
        let found: Vec<Option<Author>> = texts.belongs_to(db, Text::EDITOR_ID).await.unwrap();
        assert_eq!(found, [Some(bob), None, None]);
        let none: [Author; 0] = [];
        assert!(none.has_many(db, Text::AUTHOR_ID).await.unwrap().is_empty());
    });
}

#[test]
fn models_are_written_in_transactions_and_read_by_statements_of_ones_own() {
    on_each(async |db| {
        let lost = db.begin();
        author("lost", 0.0).insert(&lost).await.unwrap();
        assert_eq!(Author::query().count(&lost).await.unwrap(), 1);
        lost.rollback().await.unwrap();
        let kept = db.begin();
        let mut ada = author("Ada", 1.0).insert(&kept).await.unwrap();
        ada.score = 4.0;
        ada.update(&kept).await.unwrap();
        kept.commit().await.unwrap();
        let found: Vec<Author> =
            sqlx::query_as(db.sql("SELECT * FROM authors WHERE score > ? ORDER BY id"))
                .bind(1.5)
                .fetch_all(db)
                .await
                .unwrap();
        assert_eq!(found, [ada]);
    });
}
