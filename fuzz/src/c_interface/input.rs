//! The input of the thread: numbers and texts, and the mistakes that its calls showed.

use std::cell::RefCell;
use std::ffi::{CString, c_char};

#[derive(Default)]
struct Input {
    data: Vec<u8>,
    at: usize,
    mistakes: Vec<&'static str>,
}

thread_local! {
    static INPUT: RefCell<Input> = RefCell::default();
}

pub(super) fn begin(data: &[u8]) {
    INPUT.set(Input {
        data: data.to_owned(),
        ..Input::default()
    });
}

/// The next byte; 0 after the end.
fn byte() -> u8 {
    INPUT.with_borrow_mut(|input| {
        let byte = input.data.get(input.at).copied();
        input.at += 1;
        byte.unwrap_or(0)
    })
}

pub(super) fn is_at_end() -> bool {
    INPUT.with_borrow(|input| input.at >= input.data.len())
}

pub(super) fn below<T: TryFrom<u8>>(bound: u8) -> T
where
    T::Error: std::fmt::Debug,
{
    T::try_from(byte() % bound).expect("a small number")
}

/// A number, of which small ones and those at the ends of types are likely.
pub(super) fn number() -> u64 {
    const ENDS: [u64; 8] = [
        255,
        16_384,
        65_535,
        65_536,
        1 << 20,
        u32::MAX as u64,
        i64::MAX as u64,
        u64::MAX,
    ];
    match byte() {
        small @ 0..=200 => small.into(),
        at => ENDS[usize::from(at) % ENDS.len()],
    }
}

pub(super) fn add_mistake(mistake: &'static str) {
    INPUT.with_borrow_mut(|input| input.mistakes.push(mistake));
}

pub(super) fn take_mistakes() -> Vec<&'static str> {
    INPUT.with_borrow_mut(|input| std::mem::take(&mut input.mistakes))
}

/// A text for C, or NULL.
pub(super) struct Text(Option<CString>);

impl Text {
    /// The pointer is valid as long as this text.
    pub(super) fn pointer(&self) -> *const c_char {
        self.0
            .as_ref()
            .map_or(std::ptr::null(), |text| text.as_ptr())
    }

    pub(super) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |text| text.as_bytes().len())
    }
}

/// One of these, or up to 15 bytes of the input, or NULL.
pub(super) fn text_of(likely: &[&str]) -> Text {
    let choice = usize::from(byte());
    match likely.get(choice) {
        Some(text) => Text(Some(CString::new(*text).expect("a text without NUL"))),
        None if choice == 255 => Text(None),
        None => {
            let bytes: Vec<u8> = (0..choice % 16).map(|_| byte().max(1)).collect();
            Text(Some(CString::new(bytes).expect("bytes without NUL")))
        }
    }
}

/// A text of the kind that handlers pass.
pub(super) fn text() -> Text {
    text_of(&[
        "x-field",
        "text/plain",
        "content-length",
        "transfer-encoding",
        "/place",
        "id",
        "line\r\nbreak",
        "",
        "a b",
    ])
}
