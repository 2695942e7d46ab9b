//! Orders: complete or not at all, and never beyond the stock.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::servers::Shop;

fn user(shop: &Shop) -> i64 {
    shop.add(
        "/users",
        json!({ "name": "Ada", "email": "ada@example.com" }),
    )
}

/// An order with this quantity of each product.
fn order(user: i64, lines: &[(i64, i64)]) -> Value {
    let lines: Vec<_> = lines
        .iter()
        .map(|(product, quantity)| json!({ "product": product, "quantity": quantity }))
        .collect();
    json!({ "user": user, "lines": lines })
}

#[test]
fn an_order_takes_from_the_stock_and_keeps_its_prices() {
    for shop in Shop::on_each() {
        let user = user(&shop);
        let [swift, martin] = [("Swift", 1999), ("Martin", 500)]
            .map(|(name, price)| shop.add_product(name, price, 10));
        let client = shop.client();
        let wanted = order(user, &[(martin, 1), (swift, 2), (martin, 2)]);
        let mut reply = client.post("/orders").json(&wanted).send();
        reply
            .assert_status(201)
            .assert_header("location", "/orders/1");
        let placed: Value = reply.json();
        assert_eq!(placed["total_cents"], 2 * 1999 + 3 * 500);
        assert_eq!(
            placed["lines"],
            json!([
                { "product": swift, "quantity": 2, "price_cents": 1999 },
                { "product": martin, "quantity": 3, "price_cents": 500 },
            ])
        );
        assert_eq!([shop.stock(swift), shop.stock(martin)], [8, 7]);
        client
            .get("/orders/1")
            .send()
            .assert_ok()
            .assert_json(&placed);
        let orders: Value = client.get(&format!("/users/{user}/orders")).send().json();
        assert_eq!(orders["items"][0]["total_cents"], placed["total_cents"]);
    }
}

#[test]
fn an_order_that_cannot_be_whole_changes_nothing() {
    for shop in Shop::on_each() {
        let user = user(&shop);
        let [many, few] =
            [("Many", 100), ("Few", 1)].map(|(name, stock)| shop.add_product(name, 100, stock));
        let client = shop.client();
        let wanted = order(user, &[(many, 5), (few, 2)]);
        let mut reply = client.post("/orders").json(&wanted).send();
        reply.assert_status(409);
        let problem: Value = reply.json();
        assert_eq!(problem["type"], "/problems/out-of-stock", "{problem}");
        assert_eq!([&problem["product"], &problem["left"]], [few, 1]);
        let mut reply = client
            .post("/orders")
            .json(&order(user, &[(many, 5), (99, 1)]))
            .send();
        reply.assert_status(422);
        let problem: Value = reply.json();
        assert_eq!(problem["errors"][0]["pointer"], "/lines/1/product");
        assert_eq!([shop.stock(many), shop.stock(few)], [100, 1]);
        client.get("/orders/1").send().assert_status(404);
        let orders = client.get(&format!("/users/{user}/orders")).send();
        { orders }.assert_json(json!({ "items": [], "next": null }));
    }
}

#[test]
fn nothing_is_sold_twice_however_many_order_at_once() {
    const CLIENTS: i64 = 6;
    const ORDERS: i64 = 12;
    const STOCK: i64 = 40;
    for shop in Shop::on_each() {
        let user = user(&shop);
        let [one, other] = ["One", "Other"].map(|name| shop.add_product(name, 100, STOCK));
        // Half of the orders name the products in reverse, which must not cause a deadlock.
        let tallies: Vec<BTreeMap<u16, i64>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..CLIENTS)
                .map(|number| {
                    let shop = &shop;
                    scope.spawn(move || {
                        let client = shop.client();
                        let mut lines = [(one, 1), (other, 1)];
                        if number % 2 == 1 {
                            lines.reverse();
                        }
                        let mut tally = BTreeMap::new();
                        for _ in 0..ORDERS {
                            let reply = client.post("/orders").json(&order(user, &lines)).send();
                            *tally.entry(reply.status().as_u16()).or_insert(0) += 1;
                        }
                        tally
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        let mut sum = BTreeMap::new();
        for (status, count) in tallies.iter().flatten() {
            *sum.entry(*status).or_insert(0) += count;
        }
        let expected = BTreeMap::from([(201, STOCK), (409, CLIENTS * ORDERS - STOCK)]);
        assert_eq!(sum, expected, "{:?}", shop.db);
        assert_eq!([shop.stock(one), shop.stock(other)], [0, 0]);
        let orders: Value = shop
            .client()
            .get(&format!("/users/{user}/orders?limit=100"))
            .send()
            .json();
        assert_eq!(orders["items"].as_array().unwrap().len() as i64, STOCK);
    }
}
