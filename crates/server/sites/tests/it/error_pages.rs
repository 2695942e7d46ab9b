//! Default error pages, as a site gives them.

use apus_sites::Site;

use apus_testkit::get;

#[test]
fn people_get_a_page_programs_get_problem_details_others_text() {
    let site = Site::new("a");
    let browser = get("/")
        .with("accept", "text/html,application/xhtml+xml,*/*;q=0.8")
        .to(&site);
    assert_eq!(browser.status, 404);
    assert_eq!(
        browser.field("content-type"),
        Some("text/html; charset=utf-8")
    );
    assert!(browser.text().contains("Not Found"));
    assert_eq!(browser.field("vary"), Some("accept, accept-language"));
    let chinese = get("/")
        .with("accept", "text/html")
        .with("accept-language", "zh-CN,zh;q=0.9,en;q=0.8")
        .to(&site);
    assert!(chinese.text().contains("<html lang=\"zh-Hans\">"));
    assert!(chinese.text().contains("页面不存在"));
    assert_eq!(chinese.field("vary"), Some("accept, accept-language"));
    let program = get("/")
        .with("accept", "application/json")
        .with("accept-language", "zh")
        .to(&site);
    assert!(program.text().contains("Not Found"));
    assert_eq!(program.field("vary"), Some("accept"));
    assert_eq!(
        program.field("content-type"),
        Some("application/problem+json")
    );
    assert_eq!(
        get("/").with("accept", "*/*").to(&site).text(),
        "404 Not Found\n"
    );
    assert_eq!(get("/").to(&site).text(), "404 Not Found\n");
}
