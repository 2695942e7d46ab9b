//! UTF-8 in text messages: group 6 of the Autobahn test suite. Wrong text is refused as soon as it is wrong.

use apus_websocket::codec::{Event, ProtocolError, Settings};

use super::peer::{CONTINUATION, Echo, FIN, TEXT, frame, text};
use super::table::texts;

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
