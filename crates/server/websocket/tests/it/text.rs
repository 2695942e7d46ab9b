//! UTF-8 in text messages: group 6 of the Autobahn test suite.

use apus_websocket::codec::{CodecSettings, WebSocketEvent, WebSocketProtocolError};

use super::peer::{CONTINUATION, Echo, FIN, TEXT, frame, text};
use super::table::texts;

#[test]
fn valid_utf_8_is_echoed_and_invalid_closes_the_connection() {
    for (name, payload) in texts() {
        let is_valid = std::str::from_utf8(&payload).is_ok();
        let in_fragments = |size: usize| -> Vec<u8> {
            let mut frames: Vec<_> = payload
                .chunks(size)
                .map(|part| frame(CONTINUATION, part))
                .collect();
            frames[0].first |= TEXT;
            frames.last_mut().unwrap().first |= FIN;
            frames.iter().flat_map(|frame| frame.bytes()).collect()
        };
        for bytes in [text(&payload).bytes(), in_fragments(1), in_fragments(3)] {
            for size in [usize::MAX, 1, 3] {
                let responses = Echo::server(&CodecSettings::default()).responses(&bytes, size);
                if is_valid {
                    assert_eq!(responses, [text(&payload).unmasked()], "{name}")
                } else {
                    assert_eq!(responses[0].payload[..2], 1007_u16.to_be_bytes(), "{name}")
                }
            }
        }
    }
}

#[test]
fn rejects_invalid_text_at_its_first_invalid_byte() {
    let payload = b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xf4\x90\x80\x80edited";
    let failed = [WebSocketEvent::Failed(WebSocketProtocolError::InvalidUtf8)];
    // 6.4.1, 6.4.2: in a fragment before the last.
    let mut echo = Echo::server(&CodecSettings::default());
    echo.feed(&frame(TEXT, &payload[..12]).bytes());
    assert_eq!(echo.events, []);
    echo.feed(&frame(CONTINUATION, &payload[12..13]).bytes());
    assert_eq!(echo.events, failed);
    // 6.4.3, 6.4.4: inside of a frame.
    let bytes = text(payload).bytes();
    let mut echo = Echo::server(&CodecSettings::default());
    for byte in &bytes[..6 + 12] {
        echo.feed(&[*byte]);
    }
    assert_eq!(echo.events, []);
    echo.feed(&bytes[6 + 12..][..1]);
    assert_eq!(echo.events, failed);
}
