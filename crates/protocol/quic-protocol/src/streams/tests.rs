use super::*;
use crate::error::TransportError;
use crate::frame::{QuicFrame, StreamFrame};
use crate::varint::Reader;

const SETTINGS: StreamSettings = StreamSettings {
    receive_window: 2_000,
    stream_receive_window: 1_000,
    send_window: 10_000,
    max_bidi: 10,
    max_uni: 2,
};

/// A server whose client allows 1,000 bytes in each stream and 10 streams.
fn server() -> Streams {
    let mut streams = Streams::new(Side::Server, SETTINGS);
    streams.set_peer_parameters(&TransportParameters {
        max_data: 5_000,
        max_stream_data_bidi_local: 1_000,
        max_stream_data_bidi_remote: 1_000,
        max_stream_data_uni: 1_000,
        max_streams_bidi: 10,
        max_streams_uni: 2,
        ..TransportParameters::default()
    });
    streams
}

fn id(initiator: Side, direction: Dir, index: u64) -> StreamId {
    StreamId::new(initiator, direction, index)
}

fn receive(
    streams: &mut Streams,
    stream: StreamId,
    offset: u64,
    length: usize,
    fin: bool,
) -> Result<(), TransportError> {
    let data = &vec![7; length];
    streams.on_stream_frame(&StreamFrame {
        stream,
        offset,
        data,
        fin,
    })
}

fn events(streams: &mut Streams) -> Vec<StreamEvent> {
    std::iter::from_fn(|| streams.next_event()).collect()
}

/// The STREAM frames of packets of this size, with what they take.
fn packets(streams: &mut Streams, size: usize) -> Vec<Vec<StreamRecord>> {
    let mut packets = Vec::new();
    while streams.has_data() {
        let mut buffer = Vec::new();
        let mut records = Vec::new();
        while let Some(record) = streams.write_data(size, &mut buffer) {
            records.push(record);
        }
        assert!(buffer.len() <= size);
        // What was written is read as it was recorded.
        let mut reader = Reader::new(&buffer);
        let mut read = Vec::new();
        while !reader.is_empty() {
            match QuicFrame::read(&mut reader).unwrap() {
                QuicFrame::Stream(frame) => read.push(StreamRecord {
                    stream: frame.stream.into(),
                    offset: frame.offset,
                    length: frame.data.len() as u16,
                    fin: frame.fin,
                }),
                frame => assert_eq!(frame, QuicFrame::Padding),
            }
        }
        assert_eq!(read, records);
        packets.push(records);
    }
    packets
}

fn controls(streams: &mut Streams) -> Vec<StreamControl> {
    let mut buffer = Vec::new();
    std::iter::from_fn(|| streams.write_control(1_000, &mut buffer)).collect()
}

fn write(streams: &mut Streams, stream: StreamId, length: usize) -> usize {
    streams
        .write(stream, &mut [vec![1; length].into()])
        .unwrap()
}

#[test]
fn a_frame_opens_its_stream_and_those_before_it() {
    let mut streams = server();
    let stream = |index| id(Side::Client, Dir::Bi, index);
    receive(&mut streams, stream(2), 0, 10, false).unwrap();
    let opened = (0..3).map(|index| StreamEvent::Opened(stream(index)));
    assert_eq!(events(&mut streams), opened.collect::<Vec<_>>());
    // The application reads it before it is reported again.
    receive(&mut streams, stream(2), 10, 10, false).unwrap();
    assert_eq!(events(&mut streams), []);
    let mut read = 0;
    let state = streams.read(stream(2), 100, |data| read += data.len());
    assert_eq!((state, read), (Ok(ReadState::Blocked), 20));
    receive(&mut streams, stream(2), 20, 10, true).unwrap();
    assert_eq!(events(&mut streams), [StreamEvent::Readable(stream(2))]);
    let state = streams.read(stream(2), 100, |_| ());
    assert_eq!(state, Ok(ReadState::Finished));
    assert_eq!(
        streams.read(stream(2), 1, |_| ()),
        Err(StreamReadError::Closed)
    );
}

#[test]
fn streams_of_one_priority_are_sent_one_after_another() {
    let mut streams = server();
    let [first, second, urgent] = [(); 3].map(|()| streams.open(Dir::Bi).unwrap());
    streams.set_priority(urgent, 1).unwrap();
    for stream in [first, second, urgent] {
        write(&mut streams, stream, 300);
    }
    let order: Vec<u64> = packets(&mut streams, 100)
        .concat()
        .iter()
        .map(|record| record.stream)
        .collect();
    let mut turns = order.clone();
    turns.dedup();
    assert_eq!(turns, [urgent, first, second].map(u64::from));
}

#[test]
fn a_stream_that_is_written_in_its_turn_goes_behind_the_others() {
    let mut streams = server();
    let [first, second] = [(); 2].map(|()| streams.open(Dir::Bi).unwrap());
    write(&mut streams, first, 200);
    write(&mut streams, second, 100);
    let mut buffer = Vec::new();
    let record = streams.write_data(100, &mut buffer).unwrap();
    assert_eq!(record.stream, first.into());
    write(&mut streams, first, 100);
    let rest = packets(&mut streams, 60).concat();
    let mut turns: Vec<u64> = rest.iter().map(|record| record.stream).collect();
    turns.dedup();
    assert_eq!(turns, [first, second, first].map(u64::from));
    let sent: u64 = rest.iter().map(|record| u64::from(record.length)).sum();
    assert_eq!(sent + u64::from(record.length), 400);
}

#[test]
fn packets_of_any_size_carry_all_data() {
    for size in 20..140 {
        let mut streams = server();
        let stream = streams.open(Dir::Bi).unwrap();
        let other = streams.open(Dir::Uni).unwrap();
        write(&mut streams, stream, 1_000);
        write(&mut streams, other, 60);
        streams.finish(stream).unwrap();
        streams.finish(other).unwrap();
        let records = packets(&mut streams, size).concat();
        for (stream, length) in [(stream, 1_000), (other, 60)] {
            let of_stream: Vec<_> = records
                .iter()
                .filter(|record| record.stream == stream.into())
                .collect();
            let mut offset = 0;
            for record in &of_stream {
                assert_eq!(record.offset, offset);
                offset += u64::from(record.length);
            }
            assert_eq!(offset, length);
            assert!(of_stream.last().unwrap().fin);
        }
        for record in records {
            streams.on_acknowledged(record);
        }
        assert_eq!(streams.sending(), 0);
        let finished = [StreamEvent::Finished(stream), StreamEvent::Finished(other)];
        assert_eq!(events(&mut streams), finished);
    }
}

#[test]
fn lost_data_is_sent_again_with_the_end() {
    let mut streams = server();
    let stream = streams.open(Dir::Uni).unwrap();
    write(&mut streams, stream, 250);
    streams.finish(stream).unwrap();
    let records = packets(&mut streams, 100).concat();
    for record in &records {
        streams.on_lost(*record);
    }
    streams.on_acknowledged(records[0]);
    let again = packets(&mut streams, 1_000).concat();
    assert_eq!(again.len(), 1);
    assert_eq!(again[0].offset, u64::from(records[0].length));
    assert!(again[0].fin);
    streams.on_acknowledged(again[0]);
    assert_eq!(events(&mut streams), [StreamEvent::Finished(stream)]);
    // A late acknowledgement of what was sent before.
    streams.on_acknowledged(records[2]);
    streams.on_lost(records[1]);
    assert!(!streams.has_data() && events(&mut streams).is_empty());
}

#[test]
fn writes_stop_at_each_limit_and_go_on_when_it_grows() {
    let mut streams = server();
    let stream = streams.open(Dir::Bi).unwrap();
    assert_eq!(write(&mut streams, stream, 1_001), 1_000);
    assert_eq!(write(&mut streams, stream, 1), 0);
    assert_eq!(events(&mut streams), []);
    streams.on_max_stream_data(stream, 9_000).unwrap();
    assert_eq!(events(&mut streams), [StreamEvent::Writable(stream)]);
    // 5,000 of the connection.
    assert_eq!(write(&mut streams, stream, 5_000), 4_000);
    streams.on_max_data(4_000);
    assert_eq!(events(&mut streams), []);
    streams.on_max_data(20_000);
    assert_eq!(events(&mut streams), [StreamEvent::Writable(stream)]);
    assert_eq!(write(&mut streams, stream, 5_000), 4_000);
    // 10,000 of the send window.
    let other = streams.open(Dir::Bi).unwrap();
    streams.on_max_stream_data(other, 9_000).unwrap();
    assert_eq!(write(&mut streams, other, 2_000), 1_000);
    let record = packets(&mut streams, 700).concat()[0];
    streams.on_acknowledged(record);
    assert_eq!(events(&mut streams), [StreamEvent::Writable(other)]);
    assert_eq!(write(&mut streams, other, 2_000), record.length.into());
}

#[test]
fn what_is_read_gives_credit() {
    let mut streams = server();
    let stream = id(Side::Client, Dir::Bi, 0);
    receive(&mut streams, stream, 0, 1_000, false).unwrap();
    let error = receive(&mut streams, stream, 1_000, 1, false).unwrap_err();
    assert_eq!(u64::from(error.code), 3);
    assert_eq!(controls(&mut streams), []);
    streams.read(stream, 1_000, |_| ()).unwrap();
    let expected = [StreamControl::MaxData, StreamControl::MaxStreamData(stream)];
    assert_eq!(controls(&mut streams), expected);
    receive(&mut streams, stream, 1_000, 1_000, false).unwrap();
    // Lost limits are sent again, as long as they are needed.
    for control in expected {
        streams.on_control_lost(control);
    }
    assert_eq!(controls(&mut streams), expected);
    receive(&mut streams, stream, 2_000, 0, true).unwrap();
    streams.on_control_lost(expected[1]);
    assert_eq!(controls(&mut streams), []);
}

#[test]
fn streams_that_end_make_room_for_others() {
    let mut streams = server();
    let stream = |index| id(Side::Client, Dir::Uni, index);
    assert_eq!(
        u64::from(
            receive(&mut streams, stream(2), 0, 1, true)
                .unwrap_err()
                .code
        ),
        4
    );
    receive(&mut streams, stream(1), 0, 1, true).unwrap();
    assert_eq!(streams.read(stream(1), 10, |_| ()), Ok(ReadState::Finished));
    assert_eq!(
        controls(&mut streams),
        [StreamControl::MaxStreams(Dir::Uni)]
    );
    receive(&mut streams, stream(2), 0, 1, true).unwrap();
    // Frames of a stream that is over are ignored.
    receive(&mut streams, stream(1), 0, 1, true).unwrap();
}

#[test]
fn a_stream_that_the_peer_stops_is_reset() {
    let mut streams = server();
    let stream = streams.open(Dir::Uni).unwrap();
    write(&mut streams, stream, 500);
    streams.write_data(202, &mut Vec::new()).unwrap();
    streams.on_stop_sending(stream, 9).unwrap();
    assert_eq!(
        events(&mut streams),
        [StreamEvent::Stopped { stream, code: 9 }]
    );
    assert!(!streams.has_data());
    // What was not sent does not count for flow control.
    assert_eq!(streams.data_written, 200);
    let error = Err(StreamWriteError::Stopped { code: 9 });
    assert_eq!(streams.write(stream, &mut [vec![1].into()]), error);
    assert_eq!(controls(&mut streams), [StreamControl::ResetStream(stream)]);
    assert_eq!(streams.reset(stream, 1), Ok(()));
    assert_eq!(streams.reset(stream, 1), Err(StreamWriteError::Closed));
    streams.on_control_lost(StreamControl::ResetStream(stream));
    assert_eq!(controls(&mut streams), [StreamControl::ResetStream(stream)]);
    streams.on_control_acknowledged(StreamControl::ResetStream(stream));
    assert_eq!(streams.sending(), 0);
    assert_eq!(streams.unacknowledged, 0);
}

#[test]
fn a_stream_that_is_stopped_is_over_when_its_size_is_known() {
    let mut streams = server();
    let stream = id(Side::Client, Dir::Uni, 0);
    receive(&mut streams, stream, 0, 100, false).unwrap();
    streams.stop_sending(stream, 5).unwrap();
    assert_eq!(
        streams.read(stream, 1, |_| ()),
        Err(StreamReadError::Closed)
    );
    let stop = StreamControl::StopSending { stream, code: 5 };
    assert_eq!(controls(&mut streams), [stop]);
    receive(&mut streams, stream, 100, 300, false).unwrap();
    streams.on_reset(stream, 5, 500).unwrap();
    // All of it is credited.
    assert_eq!((streams.data_received, streams.data_read), (500, 500));
    streams.on_control_lost(stop);
    assert!(!controls(&mut streams).contains(&stop));
}

#[test]
fn a_stream_can_be_opened_again_when_the_peer_allows_more() {
    let mut streams = server();
    assert!(streams.open(Dir::Uni).is_some() && streams.open(Dir::Uni).is_some());
    streams.on_max_streams(Dir::Uni, 3);
    assert_eq!(events(&mut streams), []);
    assert!(streams.open(Dir::Uni).is_some());
    assert_eq!(streams.open(Dir::Uni), None);
    streams.on_max_streams(Dir::Uni, 3);
    assert_eq!(events(&mut streams), []);
    streams.on_max_streams(Dir::Uni, 4);
    assert_eq!(events(&mut streams), [StreamEvent::Available(Dir::Uni)]);
}
