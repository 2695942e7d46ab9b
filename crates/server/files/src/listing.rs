//! A listing of a folder, as an HTML page in English or Chinese, or as JSON.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt::Write;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, UNIX_EPOCH};

use apus_http::fields::{PageLanguage, accept, http_date_text};
use apus_http::{HeaderValue, Request, Response, StatusCode, escape_html, header};
use rustix::fs::{AtFlags, Dir, FileType};
use rustix::io::Errno;
use serde::Serialize;

use crate::FilesOptions;
use crate::tree::{FolderSecrets, RootFolder};
use apus_compress::media_type;
use apus_http::path::encode;

/// The most entries of a listing. A longer one is cut, and says so.
const MAX_ENTRIES: usize = 10_000;

const STYLE: &str = include_str!("listing.css");
const ICONS: &str = include_str!("listing.svg");

/// The order of a listing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ListingOrder {
    column: ListingColumn,
    is_descending: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ListingColumn {
    #[default]
    Name,
    Size,
    Modified,
}

const COLUMNS: [(ListingColumn, &str); 3] = [
    (ListingColumn::Name, "name"),
    (ListingColumn::Size, "size"),
    (ListingColumn::Modified, "modified"),
];

/// The texts of a page.
struct ListingTexts {
    /// The names of the columns, in the order of [`COLUMNS`].
    columns: [&'static str; 3],
    /// One folder, and several.
    folders: [&'static str; 2],
    files: [&'static str; 2],
    parent: &'static str,
    top: &'static str,
    empty: &'static str,
    /// Around the number of entries that are shown.
    cut: [&'static str; 2],
}

const ENGLISH: ListingTexts = ListingTexts {
    columns: ["Name", "Size", "Modified (UTC)"],
    folders: ["folder", "folders"],
    files: ["file", "files"],
    parent: "Parent folder",
    top: "Top",
    empty: "Nothing here yet.",
    cut: ["Only ", " of the names in this folder are shown."],
};

const CHINESE: ListingTexts = ListingTexts {
    columns: ["名称", "大小", "修改时间 (UTC)"],
    folders: ["个文件夹"; 2],
    files: ["个文件"; 2],
    parent: "上级文件夹",
    top: "顶层",
    empty: "这里还没有内容。",
    cut: ["只显示此文件夹中的 ", " 个名称。"],
};

impl ListingOrder {
    /// Parses `sort=size&order=desc`; other values are ignored.
    pub(crate) fn of(query: Option<&str>) -> Self {
        let mut order = Self::default();
        for (key, value) in pairs(query) {
            match key {
                "sort" => {
                    let column = COLUMNS.iter().find(|(_, name)| *name == value);
                    order.column = column.map_or(order.column, |(column, _)| *column);
                }
                "order" => order.is_descending = value == "desc",
                _ => {}
            }
        }
        order
    }
}

/// The format of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListingFormat {
    Html(PageLanguage),
    Json,
}

impl ListingFormat {
    /// From `?format=json`, else from `Accept`; the language from `Accept-Language`.
    pub(crate) fn of(request: &Request) -> Self {
        let html = || Self::Html(PageLanguage::preferred(request.headers()));
        for pair in pairs(request.query()) {
            match pair {
                ("format", "json") => return Self::Json,
                ("format", "html") => return html(),
                _ => {}
            }
        }
        let offered = ["text/html", "application/json"];
        match accept::choose(request.headers(), &offered) {
            Some("application/json") => Self::Json,
            _ => html(),
        }
    }

    /// The response with a listing.
    pub(crate) fn respond(self, text: String) -> Response {
        let media_type = HeaderValue::from_static(match self {
            Self::Html(_) => "text/html; charset=utf-8",
            Self::Json => "application/json",
        });
        let vary = HeaderValue::from_static(match self {
            Self::Html(_) => "accept, accept-language",
            Self::Json => "accept",
        });
        Response::new(StatusCode::OK)
            .with_header(&header::CONTENT_TYPE, &media_type)
            .with_header(&header::VARY, &vary)
            .with_header(
                &header::CACHE_CONTROL,
                &HeaderValue::from_static("no-cache"),
            )
            .with_body(text)
    }
}

fn pairs(query: Option<&str>) -> impl Iterator<Item = (&str, &str)> {
    query
        .unwrap_or_default()
        .split('&')
        .filter_map(|pair| pair.split_once('='))
}

/// An entry of a listing.
#[derive(Debug)]
pub(crate) struct ListingEntry {
    name: Vec<u8>,
    is_folder: bool,
    len: u64,
    /// Seconds since 1970.
    modified: u64,
    media_type: String,
}

/// The entries of a folder, up to the limit.
pub(crate) struct Listing {
    entries: Vec<ListingEntry>,
    is_cut: bool,
}

/// Reads the folder at `path`, relative to the root. Only entries that are served are listed.
pub(crate) fn read(root: &RootFolder, path: &[u8], options: &FilesOptions) -> io::Result<Listing> {
    let opened = root.open(path)?;
    if !opened.is_readable {
        return Err(Errno::ACCESS.into());
    }
    let folder = opened.file;
    let source = ListingSource {
        root,
        secrets: root.entries_of(&folder, path),
        folder: &folder,
        path,
        options,
    };
    let mut entries = Vec::new();
    let mut is_cut = false;
    for item in Dir::read_from(&folder)? {
        let item = item?;
        let name = item.file_name().to_bytes();
        if matches!(name, b"." | b"..")
            || name.iter().any(u8::is_ascii_control)
            || name.starts_with(b".") && !options.hidden_files
        {
            continue;
        }
        if entries.len() >= MAX_ENTRIES {
            is_cut = true;
            break;
        }
        if let Some(entry) = source.entry(name) {
            entries.push(entry);
        }
    }
    Ok(Listing { entries, is_cut })
}

/// A folder that is read for a listing.
struct ListingSource<'a> {
    root: &'a RootFolder,
    secrets: FolderSecrets<'a>,
    folder: &'a File,
    /// The path of the folder, relative to the root.
    path: &'a [u8],
    options: &'a FilesOptions,
}

impl ListingSource<'_> {
    /// The entry for `name`; `None` if it is not listed.
    fn entry(&self, name: &[u8]) -> Option<ListingEntry> {
        let target = match self.path {
            b"" => name.to_vec(),
            path => [path, b"/", name].concat(),
        };
        if self.options.is_protected(&target) {
            return None;
        }
        let stat = rustix::fs::statat(self.folder, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let (kind, len, modified) = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Symlink => {
                // A link is listed as its target, if it may be followed.
                let metadata = self.root.metadata(&target).ok()?;
                let kind = FileType::from_raw_mode(metadata.mode());
                (kind, metadata.len(), metadata.mtime())
            }
            _ if self.secrets.contains(name, (stat.st_dev, stat.st_ino)) => return None,
            kind => (
                kind,
                u64::try_from(stat.st_size).unwrap_or(0),
                stat.st_mtime,
            ),
        };
        let options = self.options;
        let is_folder = match kind {
            FileType::Directory => true,
            FileType::RegularFile if !options.is_source(name) && !options.is_leftover(name) => {
                false
            }
            _ => return None,
        };
        Some(ListingEntry {
            name: name.to_vec(),
            is_folder,
            len: if is_folder { 0 } else { len },
            modified: u64::try_from(modified).unwrap_or(0),
            media_type: options.media_type(name).to_owned(),
        })
    }
}

/// Writes a listing of the folder with the request path `path`.
pub(crate) fn write(
    mut listing: Listing,
    path: &[u8],
    order: ListingOrder,
    format: ListingFormat,
) -> String {
    listing.entries.sort_by(|one, two| compare(one, two, order));
    match format {
        ListingFormat::Html(language) => html(&listing, path, (order, language)),
        ListingFormat::Json => json(&listing, path),
    }
}

/// Folders before files; then by the column; then by name.
fn compare(one: &ListingEntry, two: &ListingEntry, order: ListingOrder) -> Ordering {
    let by_name = || compare_names(&one.name, &two.name);
    let by_column = match order.column {
        ListingColumn::Name => Ordering::Equal,
        ListingColumn::Size => one.len.cmp(&two.len),
        ListingColumn::Modified => one.modified.cmp(&two.modified),
    };
    let by_column = by_column.then_with(by_name);
    two.is_folder
        .cmp(&one.is_folder)
        .then(if order.is_descending {
            by_column.reverse()
        } else {
            by_column
        })
}

/// Compares names without regard to case, and numbers in them by their value, so that `file2` comes
/// before `file10`.
fn compare_names(one: &[u8], two: &[u8]) -> Ordering {
    let (mut left, mut right) = (one, two);
    loop {
        let (Some(a), Some(b)) = (left.first(), right.first()) else {
            // The rest, or the whole name if they differ only in case or in leading zeros.
            return left.len().cmp(&right.len()).then_with(|| one.cmp(two));
        };
        if a.is_ascii_digit() && b.is_ascii_digit() {
            let ((number, left_rest), (other, right_rest)) = (number(left), number(right));
            let by_value = (number.len(), number).cmp(&(other.len(), other));
            if by_value.is_ne() {
                return by_value;
            }
            (left, right) = (left_rest, right_rest);
            continue;
        }
        let by_letter = a.to_ascii_lowercase().cmp(&b.to_ascii_lowercase());
        if by_letter.is_ne() {
            return by_letter;
        }
        left = left.get(1..).unwrap_or_default();
        right = right.get(1..).unwrap_or_default();
    }
}

/// The digits at the start of a name without leading zeros, and the rest.
fn number(name: &[u8]) -> (&[u8], &[u8]) {
    let digits = name.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = name.split_at_checked(digits).unwrap_or((name, &[]));
    let zeros = digits.iter().take_while(|byte| **byte == b'0').count();
    (digits.get(zeros..).unwrap_or_default(), rest)
}

fn json(listing: &Listing, path: &[u8]) -> String {
    #[derive(Serialize)]
    struct JsonListing<'a> {
        path: Cow<'a, str>,
        complete: bool,
        entries: Vec<JsonEntry<'a>>,
    }
    #[derive(Serialize)]
    struct JsonEntry<'a> {
        name: Cow<'a, str>,
        href: String,
        r#type: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        size: Option<u64>,
        modified: String,
    }
    let items = listing.entries.iter().map(|entry| JsonEntry {
        name: String::from_utf8_lossy(&entry.name),
        href: href(entry),
        r#type: if entry.is_folder { "directory" } else { "file" },
        size: (!entry.is_folder).then_some(entry.len),
        modified: date(entry.modified),
    });
    let listing = JsonListing {
        path: String::from_utf8_lossy(path),
        complete: !listing.is_cut,
        entries: items.collect(),
    };
    // Strings and numbers always have a form in JSON.
    serde_json::to_string(&listing).unwrap_or_default()
}

/// A reference relative to the folder. The `./` keeps a colon in a name from being a scheme.
fn href(entry: &ListingEntry) -> String {
    let mut href = String::from("./");
    href.push_str(&encode(&entry.name));
    if entry.is_folder {
        href.push('/');
    }
    href
}

fn html(listing: &Listing, path: &[u8], view: (ListingOrder, PageLanguage)) -> String {
    let mut page = String::with_capacity(
        listing
            .entries
            .len()
            .saturating_mul(256)
            .saturating_add(STYLE.len())
            .saturating_add(ICONS.len())
            .saturating_add(2048),
    );
    // Writing to a string does not fail.
    let _ = write_html(&mut page, listing, path, view);
    page
}

fn write_html(
    page: &mut String,
    listing: &Listing,
    path: &[u8],
    (order, language): (ListingOrder, PageLanguage),
) -> std::fmt::Result {
    let texts = match language {
        PageLanguage::English => &ENGLISH,
        PageLanguage::Chinese => &CHINESE,
    };
    let tag = language.tag();
    let title = escape_html(&String::from_utf8_lossy(path));
    write!(
        page,
        "<!doctype html>\n<html lang=\"{tag}\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n{ICONS}<main>\n"
    )?;
    write_breadcrumbs(page, path, texts)?;
    let folders = listing
        .entries
        .iter()
        .filter(|entry| entry.is_folder)
        .count();
    let files = listing.entries.len().saturating_sub(folders);
    let bytes = listing
        .entries
        .iter()
        .fold(0_u64, |sum, entry| sum.saturating_add(entry.len));
    writeln!(
        page,
        "<p class=\"summary\">{folders} {} · {files} {} · {}</p>",
        counted(folders, texts.folders),
        counted(files, texts.files),
        size(bytes)
    )?;
    page.push_str("<table>\n<thead>\n<tr>");
    for ((column, name), label) in COLUMNS.iter().zip(texts.columns) {
        let column = *column;
        let is_current = column == order.column;
        let (sort, arrow) = match (is_current, order.is_descending) {
            (false, _) => ("none", ""),
            (true, false) => ("ascending", " ▲"),
            (true, true) => ("descending", " ▼"),
        };
        let next = if is_current && !order.is_descending {
            "desc"
        } else {
            "asc"
        };
        write!(
            page,
            "<th scope=\"col\" class=\"{name}\" aria-sort=\"{sort}\">\
             <a href=\"?sort={name}&amp;order={next}\">{label}\
             <span aria-hidden=\"true\">{arrow}</span></a></th>"
        )?;
    }
    page.push_str("</tr>\n</thead>\n<tbody>\n");
    if path != b"/" {
        writeln!(
            page,
            "<tr><td class=\"name\"><a href=\"../\"><svg class=\"icon up\" aria-hidden=\"true\">\
             <use href=\"#up\"/></svg>{}</a></td>\
             <td class=\"size\"></td><td class=\"modified\"></td></tr>",
            texts.parent
        )?;
    }
    for entry in &listing.entries {
        let icon = icon(entry);
        writeln!(
            page,
            "<tr><td class=\"name\"><a href=\"{}\"><svg class=\"icon {icon}\" aria-hidden=\"true\">\
             <use href=\"#{icon}\"/></svg>{}{}</a></td><td class=\"size\">{}</td>\
             <td class=\"modified\"><time datetime=\"{}\">{}</time></td></tr>",
            escape_html(&href(entry)),
            escape_html(&String::from_utf8_lossy(&entry.name)),
            if entry.is_folder { "/" } else { "" },
            if entry.is_folder {
                "—".into()
            } else {
                size(entry.len)
            },
            date(entry.modified),
            date(entry.modified).replace('T', " ").trim_end_matches('Z'),
        )?;
    }
    page.push_str("</tbody>\n</table>\n");
    if listing.entries.is_empty() {
        writeln!(page, "<p class=\"empty\">{}</p>", texts.empty)?;
    }
    if listing.is_cut {
        let [before, behind] = texts.cut;
        writeln!(page, "<p class=\"empty\">{before}{MAX_ENTRIES}{behind}</p>")?;
    }
    page.push_str("</main>\n</body>\n</html>\n");
    Ok(())
}

/// The form of a word for this number of things.
fn counted(count: usize, [one, several]: [&'static str; 2]) -> &'static str {
    if count == 1 { one } else { several }
}

/// Links to each folder on the path.
fn write_breadcrumbs(page: &mut String, path: &[u8], texts: &ListingTexts) -> std::fmt::Result {
    write!(page, "<h1><a href=\"/\" title=\"{}\">⌂</a>", texts.top)?;
    let trimmed = path.strip_suffix(b"/").unwrap_or(path);
    let mut end = 0_usize;
    for segment in trimmed.split(|byte| *byte == b'/').skip(1) {
        end = end.saturating_add(segment.len()).saturating_add(1);
        let upto = trimmed.get(..end).unwrap_or_default();
        write!(
            page,
            "<span aria-hidden=\"true\">/</span><a href=\"{}/\">{}</a>",
            escape_html(&encode(upto)),
            escape_html(&String::from_utf8_lossy(segment))
        )?;
    }
    page.push_str("</h1>\n");
    Ok(())
}

/// The symbol of [`ICONS`] for an entry.
fn icon(entry: &ListingEntry) -> &'static str {
    if entry.is_folder {
        return "folder";
    }
    let extension = media_type::extension(&entry.name);
    match (entry.media_type.split('/').next(), &*extension) {
        (_, "7z" | "br" | "bz2" | "gz" | "rar" | "tar" | "tgz" | "xz" | "zip" | "zst") => "archive",
        (Some("audio"), _) => "audio",
        (Some("font"), _) => "font",
        (Some("image"), _) => "image",
        (Some("text"), _) => "text",
        (Some("video"), _) => "video",
        _ => "file",
    }
}

/// A size for people, in powers of 1024.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KB", "MB", "GB", "TB", "PB", "EB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut tenths = u128::from(bytes) * 10 / 1024;
    let mut unit = "";
    for name in UNITS {
        unit = name;
        if tenths < 10_240 {
            break;
        }
        tenths /= 1024;
    }
    if tenths < 100 {
        format!("{}.{} {unit}", tenths / 10, tenths % 10)
    } else {
        format!("{} {unit}", tenths / 10)
    }
}

/// Seconds since 1970 as `2024-02-29T12:34:56Z` (RFC 3339).
fn date(seconds: u64) -> String {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    // The last second that HTTP has a date for.
    let time = UNIX_EPOCH + Duration::from_secs(seconds.min(253_402_300_799));
    let text = http_date_text(time);
    // "Sun, 06 Nov 1994 08:49:37 GMT"
    let mut parts = text.split(' ').skip(1);
    let mut part = || parts.next().unwrap_or_default();
    let (day, month, year, clock) = (part(), part(), part(), part());
    let month = MONTHS.iter().position(|name| *name == month).unwrap_or(0);
    format!("{year}-{:02}-{day}T{clock}Z", month.saturating_add(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_sizes_and_dates_for_people() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KB"),
            (1536, "1.5 KB"),
            (10 << 20, "10 MB"),
            (1 << 30, "1.0 GB"),
            (u64::MAX, "15 EB"),
        ] {
            assert_eq!(size(bytes), text);
        }
        assert_eq!(date(0), "1970-01-01T00:00:00Z");
        assert_eq!(date(1_709_210_096), "2024-02-29T12:34:56Z");
        assert_eq!(date(u64::MAX), "9999-12-31T23:59:59Z");
    }

    #[test]
    fn numbers_in_names_are_compared_by_their_value() {
        let sorted = [
            "",
            "2",
            "10",
            "a",
            "file",
            "file2",
            "File2b",
            "file10",
            "file10a",
            "v1.2.0",
            "v1.10.0",
            "x99999999999999999999",
            "x100000000000000000000",
        ];
        for (at, one) in sorted.iter().enumerate() {
            for (other_at, other) in sorted.iter().enumerate() {
                let order = compare_names(one.as_bytes(), other.as_bytes());
                assert_eq!(order, at.cmp(&other_at), "{one} {other}");
            }
        }
        for (one, other) in [("1", "01"), ("a", "A"), ("a1b", "a01b")] {
            let order = compare_names(one.as_bytes(), other.as_bytes());
            assert_ne!(order, Ordering::Equal, "{one} {other}");
            assert_eq!(
                compare_names(other.as_bytes(), one.as_bytes()),
                order.reverse()
            );
        }
    }

    #[test]
    fn reads_the_order_from_the_query() {
        let order = ListingOrder::of(Some("a=b&sort=size&order=desc"));
        assert_eq!(
            (order.column, order.is_descending),
            (ListingColumn::Size, true)
        );
        assert_eq!(
            ListingOrder::of(Some("sort=<script>&order")),
            ListingOrder::default()
        );
        assert_eq!(ListingOrder::of(None), ListingOrder::default());
    }
}
