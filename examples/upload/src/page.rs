//! The HTML page: a form, and the list of files.

use std::fmt::Write;

use crate::Stored;

const HEAD: &str = r#"<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Files</title>
<style>
  body { font: 16px/1.5 system-ui, sans-serif; max-width: 40rem; margin: 3rem auto; padding: 0 1rem }
  table { border-collapse: collapse; width: 100%; margin-top: 2rem }
  td { border-top: 1px solid #ccc; padding: .4rem 0 }
  td + td { text-align: right }
</style>
<h1>Files</h1>
<form action="/files" method="post" enctype="multipart/form-data">
  <input type="file" name="file" multiple required aria-label="Files">
  <button>Send</button>
</form>
"#;

/// The page with these files.
pub(crate) fn of(files: &[Stored]) -> String {
    let mut page = HEAD.to_owned();
    if files.is_empty() {
        page.push_str("<p>Nothing is here yet.\n");
        return page;
    }
    page.push_str("<table>\n");
    for file in files {
        // `store::clean` leaves only spaces to be escaped in names.
        let address = file.name.replace(' ', "%20");
        // Writing to a String does not fail.
        let _ = writeln!(
            page,
            "<tr><td><a href=\"/files/{address}\">{}</a><td>{} bytes",
            file.name, file.bytes
        );
    }
    page.push_str("</table>\n");
    page
}
