//! Lists in pages.

use apus::extract::{PageLinks, Paging};
use apus::testing::TestClient;
use apus::{App, Json};

fn client() -> TestClient {
    let list = async |paging: Paging<10, 50>| {
        let links = paging.links(35);
        let place = [paging.offset(), paging.limit()];
        (links.clone(), Json((place, links.page, links.pages)))
    };
    let after = async |paging: Paging| -> (PageLinks, String) {
        let last = Some("a&b").filter(|_| paging.after().is_none());
        (
            paging.links_after(last),
            paging.after().unwrap_or("").to_owned(),
        )
    };
    TestClient::new(App::new().group("/group", |group| {
        group.get("/list", list).get("/after", after)
    }))
}

#[test]
fn a_list_links_to_its_other_pages() {
    let client = client();
    for (query, body, links) in [
        (
            "",
            "[[0,10],1,4]",
            "</group/list?page=2>; rel=\"next\", </group/list?page=4>; rel=\"last\"",
        ),
        (
            "?page=4&tag=a%26b&x",
            "[[30,10],4,4]",
            "</group/list?tag=a%26b&x&page=1>; rel=\"first\", </group/list?tag=a%26b&x&page=3>; rel=\"prev\"",
        ),
        // After the end, the last page is the one before.
        (
            "?page=9&per_page=20",
            "[[160,20],9,2]",
            "</group/list?per_page=20&page=1>; rel=\"first\", </group/list?per_page=20&page=2>; rel=\"prev\", \
             </group/list?per_page=20&page=2>; rel=\"last\"",
        ),
    ] {
        let mut reply = client.get(&format!("/group/list{query}")).send();
        reply
            .assert_ok()
            .assert_text(body)
            .assert_header("link", links);
    }
    client
        .get("/group/list?per_page=50")
        .send()
        .assert_no_header("link");
}

#[test]
fn pages_that_are_not_possible_are_rejected() {
    let client = client();
    for query in [
        "page=0",
        "page=-1",
        "page=x",
        "page=1000001",
        "page=99999999999",
        "per_page=0",
        "per_page=51",
    ] {
        client
            .get(&format!("/group/list?{query}"))
            .send()
            .assert_status(400);
    }
}

#[test]
fn a_list_continues_after_an_entry() {
    let client = client();
    let mut first = client.get("/group/after?tag=x&per_page=5").send();
    let next = "/group/after?tag=x&per_page=5&after=a%26b";
    first.assert_header("link", &format!("<{next}>; rel=\"next\""));
    client
        .get(next)
        .send()
        .assert_text("a&b")
        .assert_header("link", "</group/after?tag=x&per_page=5>; rel=\"first\"");
}

#[test]
fn a_query_cannot_end_the_reference_of_a_link() {
    let client = client();
    let mut reply = client.get("/group/list?%3E;rel=x&a=>;").send();
    if reply.status().as_u16() == 200 {
        let links = reply.header("link").unwrap_or("").to_owned();
        assert_eq!(links.matches('>').count(), 2, "{links}");
    } else {
        reply.assert_status(400);
    }
}
