//! The routes of the API, its errors, and the pages of lists.

use apus_example_shop::model::{Product, User};
use apus_testkit::block_on;
use serde_json::{Value, json};

use crate::servers::Shop;

#[test]
fn what_is_added_is_found_again() {
    for shop in Shop::on_each() {
        let client = shop.client();
        let mut reply = client
            .post("/users")
            .json(&json!({ "name": " Łukasz ", "email": "Lukasz@Example.com" }))
            .send();
        let user = json!({ "id": 1, "name": "Łukasz", "email": "lukasz@example.com" });
        reply
            .assert_status(201)
            .assert_header("location", "/users/1")
            .assert_json(&user);
        client.get("/users/1").send().assert_ok().assert_json(&user);
        client
            .post("/products")
            .json(&json!({ "name": "Swift", "price_cents": 1999, "stock": 5 }))
            .send()
            .assert_status(201)
            .assert_header("location", "/products/1");
        client
            .post("/products/1/deliveries")
            .json(&json!({ "quantity": 3 }))
            .send()
            .assert_ok()
            .assert_json(json!({ "id": 1, "name": "Swift", "price_cents": 1999, "stock": 8 }));
        // A direct call, without HTTP.
        let found = block_on(async {
            let user = User::find(&shop.db, 1).await.unwrap().unwrap();
            (user.name, Product::find(&shop.db, 9).await.unwrap())
        });
        assert_eq!(found, ("Łukasz".to_owned(), None));
    }
}

#[test]
fn what_is_not_there_is_told_as_a_problem() {
    let shop = Shop::on_any();
    let client = shop.client();
    for (path, detail) in [
        ("/users/7", "there is no user 7"),
        ("/users/7/orders", "there is no user 7"),
        ("/products/7", "there is no product 7"),
        ("/orders/7", "there is no order 7"),
    ] {
        let mut reply = client.get(path).send();
        reply
            .assert_status(404)
            .assert_header("content-type", "application/problem+json");
        let problem: Value = reply.json();
        assert_eq!(problem["status"], 404, "{problem}");
        assert_eq!(problem["title"], "Not Found", "{problem}");
        assert_eq!(problem["detail"], detail, "{problem}");
    }
    client
        .post("/products/7/deliveries")
        .json(&json!({ "quantity": 1 }))
        .send()
        .assert_status(404);
    client.get("/users/x").send().assert_status(404);
    client.delete("/users/1").send().assert_status(405);
}

#[test]
fn all_values_that_are_not_possible_are_told_at_once() {
    for shop in Shop::on_each() {
        let client = shop.client();
        for (path, value, pointers) in [
            (
                "/users",
                json!({ "name": " ", "email": "x" }),
                &["/name", "/email"][..],
            ),
            (
                "/products",
                json!({ "name": "x".repeat(101), "price_cents": -1, "stock": 10_001 }),
                &["/name", "/price_cents", "/stock"],
            ),
            ("/orders", json!({ "user": 1, "lines": [] }), &["/lines"]),
            (
                "/orders",
                json!({ "user": 1, "lines": [
                    { "product": 1, "quantity": 1 }, { "product": 1, "quantity": 0 }
                ] }),
                &["/lines/1/quantity"],
            ),
            (
                "/orders",
                json!({ "user": 1, "lines": [{ "product": 1, "quantity": 1 }] }),
                &["/user"],
            ),
        ] {
            let mut reply = client.post(path).json(&value).send();
            reply
                .assert_status(422)
                .assert_header("content-type", "application/problem+json");
            let problem: Value = reply.json();
            assert_eq!(problem["type"], "/problems/invalid", "{problem}");
            let errors = problem["errors"].as_array().unwrap();
            let found: Vec<_> = errors
                .iter()
                .map(|error| error["pointer"].as_str().unwrap())
                .collect();
            assert_eq!(found, pointers, "{path} {value}");
            assert!(errors.iter().all(|error| error["detail"].is_string()));
        }
        let kind = client.get("/problems/invalid").send().text();
        assert!(kind.contains("RFC 6901"), "{kind}");
    }
}

#[test]
fn content_that_does_not_fit_is_a_problem_too() {
    let shop = Shop::on_any();
    let client = shop.client();
    for (content, status) in [
        ("{", 400),
        ("{\"name\": 1, \"email\": \"a@b.c\"}", 422),
        ("{\"name\": \"a\"}", 422),
        (
            "{\"name\": \"a\", \"email\": \"a@b.c\", \"is_admin\": true}",
            422,
        ),
    ] {
        client
            .post("/users")
            .header("content-type", "application/json")
            .body(content)
            .send()
            .assert_status(status)
            .assert_header("content-type", "application/problem+json");
    }
    let long = json!({ "name": "x".repeat(70_000), "email": "a@b.c" });
    client.post("/users").json(&long).send().assert_status(413);
    client
        .get("/users")
        .send()
        .assert_json(json!({ "items": [], "next": null }));
}

#[test]
fn an_email_address_is_of_one_user_however_it_is_written() {
    for shop in Shop::on_each() {
        shop.add(
            "/users",
            json!({ "name": "Ada", "email": "ada@example.com" }),
        );
        let mut reply = shop
            .client()
            .post("/users")
            .json(&json!({ "name": "Other", "email": "ADA@example.com" }))
            .send();
        reply.assert_status(409);
        let problem: Value = reply.json();
        assert_eq!(problem["type"], "/problems/email-taken", "{problem}");
    }
}

#[test]
fn a_list_goes_on_where_the_page_before_ended() {
    for shop in Shop::on_each() {
        for number in 1..=5 {
            shop.add_product(&format!("Product {number}"), 100, 1);
        }
        let client = shop.client();
        let mut next = Some("/products?limit=2".to_owned());
        let mut pages: Vec<Vec<i64>> = Vec::new();
        while let Some(path) = next {
            let page: Value = client.get(&path).send().assert_ok().json();
            let items = page["items"].as_array().unwrap();
            let ids = items.iter().map(|item| item["id"].as_i64().unwrap());
            pages.push(ids.collect());
            next = page["next"].as_str().map(str::to_owned);
            if pages.len() == 1 {
                shop.add_product("Added meanwhile", 100, 1);
            }
        }
        assert_eq!(pages, [vec![1, 2], vec![3, 4], vec![5, 6]]);
        for limit in [0, -1, 101] {
            client
                .get(&format!("/products?limit={limit}"))
                .send()
                .assert_status(422);
        }
        client.get("/products?limit=x").send().assert_status(400);
    }
}
