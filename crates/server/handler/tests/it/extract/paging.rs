//! Lists in pages.

use apus_handler::Json;
use apus_handler::extract::{PageLinks, Paging};
use apus_testkit::{LocalClient, get};

use crate::harness::Routes;

fn client() -> LocalClient {
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
    let group = Routes::new().get("/list", list).get("/after", after);
    LocalClient::of(&Routes::new().nest("/group", group))
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
        let reply = client.send(get(&format!("/group/list{query}")));
        assert_eq!((reply.status, reply.text()), (200, body), "{query}");
        assert_eq!(reply.field("link"), Some(links), "{query}");
    }
    let reply = client.send(get("/group/list?per_page=50"));
    assert_eq!((reply.status, reply.field("link")), (200, None));
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
        let reply = client.send(get(&format!("/group/list?{query}")));
        assert_eq!(reply.status, 400, "{query}");
    }
}

#[test]
fn a_list_continues_after_an_entry() {
    let client = client();
    let first = client.send(get("/group/after?tag=x&per_page=5"));
    let next = "/group/after?tag=x&per_page=5&after=a%26b";
    assert_eq!(
        first.field("link"),
        Some(&*format!("<{next}>; rel=\"next\""))
    );
    let reply = client.send(get(next));
    assert_eq!(reply.text(), "a&b");
    let links = reply.field("link");
    assert_eq!(
        links,
        Some("</group/after?tag=x&per_page=5>; rel=\"first\"")
    );
}

#[test]
fn a_query_cannot_end_the_reference_of_a_link() {
    let client = client();
    let reply = client.send(get("/group/list?%3E;rel=x&a=>;"));
    if reply.status == 200 {
        let links = reply.field("link").unwrap_or("");
        assert_eq!(links.matches('>').count(), 2, "{links}");
    } else {
        assert_eq!(reply.status, 400);
    }
}
