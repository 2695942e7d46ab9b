//! Streams: transfers, flow control, resets and priorities (RFC 9000 sections 2 to 4).

use std::cell::Cell;
use std::rc::Rc;

use apus_quic::{Dir, QuicEvent, QuicSettings, StreamError, StreamEvent, StreamRead};
use apus_testkit::{UdpRelay, block_on};
use bytes::Bytes;

use crate::harness::*;

#[test]
fn a_stream_carries_data_both_ways_over_ipv4_and_ipv6() {
    block_on(async {
        for address in [V4, V6] {
            let settings = QuicSettings::default;
            let server = endpoint(&new_workers(), address, settings(), Some(one_site()));
            echo_all(&server);
            let client = endpoint(&new_workers(), address, settings(), None);
            let connection = connect(&client, &server).await;
            assert_eq!(connection.remote_address(), server.local_address());
            for length in [0, 1, 1_200, 100_000] {
                assert_eq!(exchange(&connection, &data(length)).await, data(length));
            }
        }
    });
}

#[test]
fn large_transfers_pass_through_small_windows() {
    block_on(async {
        let settings = QuicSettings {
            receive_window: 40_000,
            stream_receive_window: 20_000,
            send_window: 30_000,
            ..QuicSettings::default()
        };
        let server = server_with(settings.clone());
        echo_all(&server);
        let connection = connect(&client_with(settings), &server).await;
        let sent = data(3_000_000);
        assert!(exchange(&connection, &sent).await == sent);
    });
}

#[test]
fn large_transfers_leave_in_runs_of_packets() {
    block_on(async {
        let (server, connection) = echo_pair().await;
        let sent = data(30_000_000);
        assert!(exchange(&connection, &sent).await == sent);
        let sent = connection.statistics().udp_tx;
        assert!(sent.datagrams > 3 * sent.ios, "{sent:?}");
        // The path MTU was discovered (RFC 9000 section 14.3).
        assert_eq!(connection.statistics().path.current_mtu, 1_452);
        assert_eq!(server.counters().unsent, 0);
    });
}

#[test]
fn lost_packets_are_sent_again() {
    block_on(async {
        let server = server();
        echo_all(&server);
        let client = client();
        for lost_of in [7, 20] {
            let relay = UdpRelay::to(server.local_address()).await;
            relay.lose_one_of(lost_of);
            let connection = client
                .connect(relay.address, "localhost", &client_tls())
                .unwrap();
            connected(&connection).await;
            assert!(exchange(&connection, &data(500_000)).await == data(500_000));
            assert!(connection.statistics().path.lost_packets > 0);
        }
    });
}

#[test]
fn many_streams_of_one_connection_share_it() {
    block_on(async {
        let (_server, connection) = echo_pair().await;
        let streams: Vec<_> = (0..50).map(|_| connection.open(Dir::Bi).unwrap()).collect();
        for (index, stream) in streams.iter().enumerate() {
            let written = connection
                .write(*stream, &mut [data(1_000 + index)])
                .unwrap();
            assert_eq!(written, 1_000 + index);
            connection.finish(*stream).unwrap();
        }
        for (index, stream) in streams.iter().enumerate() {
            let echoed = read_all(&connection, *stream).await.unwrap();
            assert_eq!(echoed, data(1_000 + index));
        }
    });
}

#[test]
fn a_reader_that_does_not_read_stops_the_writer_at_the_window() {
    block_on(async {
        let window = 10_000;
        let server = server_with(QuicSettings {
            stream_receive_window: window,
            ..QuicSettings::default()
        });
        let connection = connect(&client(), &server).await;
        let accepted = accept(&server).await;
        let stream = connection.open(Dir::Bi).unwrap();
        let mut chunks = [data(50_000)];
        assert_eq!(connection.write(stream, &mut chunks), Ok(window as usize));
        assert_eq!(connection.write(stream, &mut chunks), Ok(0));
        assert_eq!(opened(&accepted).await, stream);
        let mut count = 0;
        while count < window as usize {
            let read = accepted.read(stream, usize::MAX, |chunk| count += chunk.len());
            assert_eq!(read, Ok(StreamRead::Blocked));
            if count < window as usize {
                next_event(&accepted).await;
            }
        }
        // Reading gave credit.
        assert_eq!(
            next_event(&connection).await,
            QuicEvent::Stream(StreamEvent::Writable(stream))
        );
        assert!(connection.write(stream, &mut chunks).unwrap() > 0);
    });
}

#[test]
fn a_read_passes_on_no_more_than_its_limit() {
    block_on(async {
        let (_server, connection) = echo_pair().await;
        let stream = connection.open(Dir::Bi).unwrap();
        connection.write(stream, &mut [data(100)]).unwrap();
        connection.finish(stream).unwrap();
        loop {
            let event = next_event(&connection).await;
            if event == QuicEvent::Stream(StreamEvent::Readable(stream)) {
                break;
            }
        }
        for (limit, read, state) in [
            (0, 0, StreamRead::Limited),
            (99, 99, StreamRead::Limited),
            (1, 1, StreamRead::Limited),
        ] {
            let mut count = 0;
            let result = connection.read(stream, limit, |chunk| count += chunk.len());
            assert_eq!((result, count), (Ok(state), read));
        }
        assert_eq!(read_all(&connection, stream).await, Ok(Vec::new()));
        let again = connection.read(stream, 1, |_| panic!("data after the end"));
        assert_eq!(again, Err(StreamError::Closed));
    });
}

#[test]
fn a_reset_reaches_the_reader() {
    block_on(async {
        let server = server();
        let connection = connect(&client(), &server).await;
        let accepted = accept(&server).await;
        let stream = connection.open(Dir::Uni).unwrap();
        connection.write(stream, &mut [data(10)]).unwrap();
        assert_eq!(opened(&accepted).await, stream);
        connection.reset(stream, 77).unwrap();
        let error = read_all(&accepted, stream).await;
        assert_eq!(error, Err(StreamError::Reset { code: 77 }));
        assert_eq!(connection.reset(stream, 77), Err(StreamError::Closed));
    });
}

#[test]
fn a_reader_that_stops_the_stream_reaches_the_writer() {
    block_on(async {
        let server = server();
        let connection = connect(&client(), &server).await;
        let accepted = accept(&server).await;
        let stream = connection.open(Dir::Bi).unwrap();
        connection.write(stream, &mut [data(10)]).unwrap();
        assert_eq!(opened(&accepted).await, stream);
        accepted.stop_sending(stream, 78).unwrap();
        let stopped = QuicEvent::Stream(StreamEvent::Stopped { stream, code: 78 });
        while next_event(&connection).await != stopped {}
        let error = StreamError::Stopped { code: 78 };
        assert_eq!(connection.write(stream, &mut [data(10)]), Err(error));
        assert_eq!(connection.finish(stream), Err(error));
    });
}

#[test]
fn a_finished_stream_is_reported_when_the_peer_has_it() {
    block_on(async {
        let server = server();
        let connection = connect(&client(), &server).await;
        let accepted = accept(&server).await;
        let stream = connection.open(Dir::Uni).unwrap();
        write_all(&connection, stream, &data(10)).await;
        assert_eq!(connection.unacknowledged_streams(), 1);
        assert_eq!(opened(&accepted).await, stream);
        assert_eq!(read_all(&accepted, stream).await.unwrap(), data(10));
        while next_event(&connection).await != QuicEvent::Stream(StreamEvent::Finished(stream)) {}
        assert_eq!(connection.unacknowledged_streams(), 0);
    });
}

#[test]
fn streams_can_only_be_used_in_their_direction() {
    block_on(async {
        let server = server();
        let connection = connect(&client(), &server).await;
        let accepted = accept(&server).await;
        let stream = connection.open(Dir::Uni).unwrap();
        connection.write(stream, &mut [data(1)]).unwrap();
        assert_eq!(opened(&accepted).await, stream);
        let closed = Some(StreamError::Closed);
        assert_eq!(connection.read(stream, 1, |_| ()).err(), closed);
        assert_eq!(connection.stop_sending(stream, 0).err(), closed);
        assert_eq!(accepted.write(stream, &mut [data(1)]).err(), closed);
        assert_eq!(accepted.finish(stream).err(), closed);
        assert_eq!(accepted.reset(stream, 0).err(), closed);
        assert_eq!(accepted.set_priority(stream, 0).err(), closed);
    });
}

#[test]
fn the_peer_limits_how_many_streams_are_open() {
    block_on(async {
        let server = server_with(QuicSettings {
            max_bidirectional_streams: 2,
            max_unidirectional_streams: 0,
            ..QuicSettings::default()
        });
        echo_all(&server);
        let connection = connect(&client(), &server).await;
        assert_eq!(connection.open(Dir::Uni), None);
        let first = connection.open(Dir::Bi).unwrap();
        connection.open(Dir::Bi).unwrap();
        assert_eq!(connection.open(Dir::Bi), None);
        write_all(&connection, first, &data(1)).await;
        let available = QuicEvent::Stream(StreamEvent::Available(Dir::Bi));
        let mut is_available = false;
        let mut echoed = 0;
        while !is_available {
            let read = connection.read(first, 10, |chunk| echoed += chunk.len());
            assert!(read.is_ok() || echoed == 1);
            is_available = next_event(&connection).await == available;
        }
        assert!(connection.open(Dir::Bi).is_some());
    });
}

#[test]
fn data_of_a_higher_priority_is_sent_first() {
    // Both fit into what a new connection may write before anything is acknowledged.
    const LENGTH: usize = 60_000;
    block_on(async {
        let server = server();
        let client = client();
        let connection = connect(&client, &server).await;
        let accepted = accept(&server).await;
        let [low, high] = [Dir::Uni; 2].map(|direction| connection.open(direction).unwrap());
        connection.set_priority(low, -1).unwrap();
        connection.set_priority(high, 1).unwrap();
        for stream in [low, high] {
            let written = connection.write(stream, &mut [data(LENGTH)]);
            assert_eq!(written, Ok(LENGTH));
            connection.finish(stream).unwrap();
        }
        let mut of_low = 0;
        let mut of_high = 0;
        loop {
            // Whatever order the packets are handled in, nothing of the other stream comes before the end of this.
            let read = accepted.read(high, usize::MAX, |chunk| of_high += chunk.len());
            if read == Ok(StreamRead::Finished) {
                break;
            }
            let _ = accepted.read(low, usize::MAX, |chunk| of_low += chunk.len());
            assert!(of_low == 0 || of_high == LENGTH);
            next_event(&accepted).await;
        }
        assert_eq!(
            read_all(&accepted, low).await.unwrap().len() + of_low,
            LENGTH
        );
    });
}

/// A write that the send window cut short was not reported as writable later, so the stream waited for ever.
#[test]
fn a_write_that_the_send_window_cuts_short_goes_on() {
    block_on(async {
        let server = server();
        echo_all(&server);
        for window in [99_999, 100_000, 100_001] {
            let client = client_with(QuicSettings {
                send_window: window,
                ..QuicSettings::default()
            });
            let connection = connect(&client, &server).await;
            let stream = connection.open(Dir::Uni).unwrap();
            let mut chunks = [data(70_000), data(30_001)];
            let written = connection.write(stream, &mut chunks).unwrap();
            assert_eq!(written, window as usize);
            if written < 100_001 {
                while next_event(&connection).await
                    != QuicEvent::Stream(StreamEvent::Writable(stream))
                {}
                let rest = connection.write(stream, &mut chunks);
                assert_eq!(rest, Ok(100_001 - written));
            }
            assert!(chunks.iter().all(Bytes::is_empty));
        }
    });
}

#[test]
fn written_chunks_are_taken_out_of_the_slice() {
    block_on(async {
        let server = server_with(QuicSettings {
            stream_receive_window: 15,
            ..QuicSettings::default()
        });
        let connection = connect(&client(), &server).await;
        let stream = connection.open(Dir::Bi).unwrap();
        let mut chunks = [data(10), data(10), data(10)];
        assert_eq!(connection.write(stream, &mut chunks), Ok(15));
        assert_eq!(chunks, [Bytes::new(), data(10).slice(5..), data(10)]);
    });
}

#[test]
fn a_large_transfer_does_not_delay_another_connection() {
    block_on(async {
        let server = server();
        echo_all(&server);
        let client = client();
        let [busy, other] = [
            connect(&client, &server).await,
            connect(&client, &server).await,
        ];
        // Large transfers follow one another until the other connection has what it wants. If one had to end first, each small
        // exchange would see an end; a packet that is lost and sent again may delay a few of them.
        let (is_done, ended) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(0)));
        let transfers = tokio::task::spawn_local({
            let (is_done, ended) = (Rc::clone(&is_done), Rc::clone(&ended));
            async move {
                let sent = data(20_000_000);
                while !is_done.get() {
                    assert!(exchange(&busy, &sent).await == sent);
                    ended.set(ended.get() + 1);
                }
            }
        });
        let mut undelayed = 0;
        for _ in 0..20 {
            let before = ended.get();
            assert_eq!(exchange(&other, &data(1_000)).await, data(1_000));
            undelayed += usize::from(ended.get() == before);
        }
        is_done.set(true);
        within(transfers).await.unwrap();
        assert!(undelayed >= 10, "{undelayed}");
    });
}
