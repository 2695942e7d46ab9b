//! UTF-8 in text messages: group 6 of the Autobahn test suite. Wrong text is refused as soon as it is wrong.

use apus_http::websocket::{Event, ProtocolError, Settings};

use super::peer::{CONTINUATION, Echo, FIN, TEXT, frame, text};

/// Texts by the numbers of their cases, whether they are UTF-8 or not.
fn texts() -> Vec<(&'static str, Vec<u8>)> {
    let mut texts: Vec<(&str, Vec<u8>)> = vec![
        ("6.2", "Hello-µ@ßöäüàá-UTF-8!!".into()),
        (
            "6.3",
            b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80edited".to_vec(),
        ),
        (
            "6.5",
            b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5".to_vec(),
        ),
        ("6.6", b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce".to_vec()),
        ("6.7", b"\0".to_vec()),
        ("6.7", b"\xc2\x80".to_vec()),
        ("6.7", b"\xe0\xa0\x80".to_vec()),
        ("6.7", b"\xf0\x90\x80\x80".to_vec()),
        ("6.8", b"\xf8\x88\x80\x80\x80".to_vec()),
        ("6.8", b"\xfc\x84\x80\x80\x80\x80".to_vec()),
        ("6.9", b"\x7f".to_vec()),
        ("6.9", b"\xdf\xbf".to_vec()),
        ("6.9", b"\xef\xbf\xbf".to_vec()),
        ("6.9", b"\xf4\x8f\xbf\xbf".to_vec()),
        ("6.10", b"\xf7\xbf\xbf\xbf".to_vec()),
        ("6.10", b"\xfb\xbf\xbf\xbf\xbf".to_vec()),
        ("6.10", b"\xfd\xbf\xbf\xbf\xbf\xbf".to_vec()),
        ("6.11", b"\xed\x9f\xbf".to_vec()),
        ("6.11", b"\xee\x80\x80".to_vec()),
        ("6.11", b"\xef\xbf\xbd".to_vec()),
        ("6.11", b"\xf4\x8f\xbf\xbf".to_vec()),
        ("6.11", b"\xf4\x90\x80\x80".to_vec()),
        ("6.12", b"\x80".to_vec()),
        ("6.12", b"\xbf".to_vec()),
        ("6.12", b"\x80\xbf\x80\xbf\x80\xbf".to_vec()),
        ("6.14", b"\xc0".to_vec()),
        ("6.14", b"\xe0\x80".to_vec()),
        ("6.14", b"\xf0\x80\x80".to_vec()),
        ("6.14", b"\xdf".to_vec()),
        ("6.14", b"\xef\xbf".to_vec()),
        ("6.14", b"\xf7\xbf\xbf".to_vec()),
        ("6.16", b"\xfe".to_vec()),
        ("6.16", b"\xff".to_vec()),
        ("6.17", b"\xc0\xaf".to_vec()),
        ("6.17", b"\xe0\x80\xaf".to_vec()),
        ("6.17", b"\xf0\x80\x80\xaf".to_vec()),
        ("6.18", b"\xc1\xbf".to_vec()),
        ("6.18", b"\xe0\x9f\xbf".to_vec()),
        ("6.18", b"\xf0\x8f\xbf\xbf".to_vec()),
        ("6.19", b"\xc0\x80".to_vec()),
        ("6.20", b"\xed\xa0\x80".to_vec()),
        ("6.20", b"\xed\xaf\xbf".to_vec()),
        ("6.20", b"\xed\xbf\xbf".to_vec()),
        ("6.21", b"\xed\xa0\x80\xed\xb0\x80".to_vec()),
        ("6.21", b"\xed\xaf\xbf\xed\xbf\xbf".to_vec()),
    ];
    for last in [b"\xbe", b"\xbf"] {
        for plane in ["\u{ffff}", "\u{1ffff}", "\u{7ffff}", "\u{fffff}"] {
            let mut text = plane.as_bytes().to_vec();
            *text.last_mut().unwrap() = last[0];
            texts.push(("6.22", text));
        }
    }
    // Lead bytes before what continues nothing.
    texts.extend((0x80..=0xff).map(|byte| ("6.13, 6.15", vec![byte, b' '])));
    texts
}

#[test]
fn text_comes_back_if_it_is_utf_8_and_else_ends_the_connection() {
    for (name, content) in texts() {
        let is_valid = std::str::from_utf8(&content).is_ok();
        let in_fragments = |size: usize| -> Vec<u8> {
            let mut frames: Vec<_> = content
                .chunks(size)
                .map(|part| frame(CONTINUATION, part))
                .collect();
            frames[0].first |= TEXT;
            frames.last_mut().unwrap().first |= FIN;
            frames.iter().flat_map(|frame| frame.bytes()).collect()
        };
        for bytes in [text(&content).bytes(), in_fragments(1), in_fragments(3)] {
            for size in [usize::MAX, 1, 3] {
                let answers = Echo::server(&Settings::default()).answers(&bytes, size);
                match is_valid {
                    true => assert_eq!(answers, [text(&content).unmasked()], "{name}"),
                    false => assert_eq!(answers[0].payload[..2], 1007_u16.to_be_bytes(), "{name}"),
                }
            }
        }
    }
}

#[test]
fn wrong_text_is_refused_before_the_rest_of_it_comes() {
    let content = b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xf4\x90\x80\x80edited";
    let failed = [Event::Failed(ProtocolError::InvalidUtf8)];
    // 6.4.1, 6.4.2: in a fragment before the last.
    let mut echo = Echo::server(&Settings::default());
    echo.feed(&frame(TEXT, &content[..12]).bytes());
    assert_eq!(echo.events, []);
    echo.feed(&frame(CONTINUATION, &content[12..13]).bytes());
    assert_eq!(echo.events, failed);
    // 6.4.3, 6.4.4: inside of a frame.
    let bytes = text(content).bytes();
    let mut echo = Echo::server(&Settings::default());
    for byte in &bytes[..6 + 12] {
        echo.feed(&[*byte]);
    }
    assert_eq!(echo.events, []);
    echo.feed(&bytes[6 + 12..][..1]);
    assert_eq!(echo.events, failed);
}
