//! Goodput of downloads beside the theoretical bound, and uploads that survive lost packets.

use std::time::Duration;

use crate::settings::{
    CongestionControl, INITIAL_CONGESTION_WINDOW, LARGEST_STREAM_RECEIVE_WINDOW, QuicSettings,
};
use crate::simulation::path::PathSettings;
use crate::simulation::transfer::{Outcome, Transfer};

/// Bytes per second of 1 Mbit/s.
const MBIT: f64 = 125_000.0;
const RATE: f64 = 100.0 * MBIT;
/// The stream data of a packet of 1,452 bytes, and the packet with the headers of IPv4 and UDP.
const PAYLOAD: f64 = 1_420.0;
const PACKET: f64 = 1_480.0;
const ROUND_TRIPS: [Duration; 4] = [
    Duration::from_millis(1),
    Duration::from_millis(20),
    Duration::from_millis(100),
    Duration::from_millis(300),
];
const LOSSES: [f64; 4] = [0.0, 0.001, 0.01, 0.03];

/// The windows that HTTP/3 has by default, except for the receiver's windows, which are so large that only congestion
/// limits the sender.
fn settings(congestion: CongestionControl) -> QuicSettings {
    QuicSettings {
        receive_window: 64 << 20,
        stream_receive_window: 64 << 20,
        send_window: 16 << 20,
        congestion,
        ..QuicSettings::default()
    }
}

/// 100 Mbit/s, with a queue for what is in flight at this rate, and at least for 100 packets.
fn path(round_trip: Duration, loss: f64) -> PathSettings {
    PathSettings {
        round_trip,
        rate: RATE,
        queue: (RATE * round_trip.as_secs_f64()).max(100.0 * PACKET),
        loss,
        reordering: 0.0,
        duplication: 0.0,
    }
}

/// A download of at most five minutes at the bound.
fn download(congestion: CongestionControl, path: PathSettings, most: f64) -> Transfer {
    Transfer {
        path,
        settings: settings(congestion),
        body: (bound(congestion, &path) * 300.0).min(most) as usize,
        seed: 1,
    }
}

/// The most bytes per second of a body over a path, after the start.
///
/// For CUBIC, loss limits the mean window to the larger one of the response functions of Reno (RFC 9438 section 4.3)
/// and of CUBIC (section 5.1): in packets, with the loss p and the round trip T in seconds, 1.22 / p^0.5 and
/// 1.054 * (T / p)^0.75. BBR does not take loss for congestion.
fn bound(congestion: CongestionControl, path: &PathSettings) -> f64 {
    let delivered = path.rate * PAYLOAD / PACKET * (1.0 - path.loss);
    if congestion == CongestionControl::Bbr || path.loss == 0.0 {
        return delivered;
    }
    let round_trip = path.round_trip.as_secs_f64();
    let reno = (1.5 / path.loss).sqrt();
    let cubic = 1.054 * (round_trip / path.loss).powf(0.75);
    delivered.min(reno.max(cubic) * PAYLOAD / round_trip)
}

/// The least time of a download, with the round trips of the handshake, the request, and a window that grows in each until
/// it is full: to the double with CUBIC, and by the gain of BBR.
fn least_time(transfer: &Transfer) -> f64 {
    let bound = bound(transfer.settings.congestion, &transfer.path);
    let round_trip = transfer.path.round_trip.as_secs_f64();
    let growth: f64 = match transfer.settings.congestion {
        CongestionControl::Cubic => 2.0,
        CongestionControl::Bbr => 2.885,
    };
    let growing = (bound * round_trip / INITIAL_CONGESTION_WINDOW as f64).log(growth);
    transfer.body as f64 / bound + (1.0 + growing.max(0.0)) * round_trip
}

fn assert_least_share(congestion: CongestionControl, least: f64) {
    for round_trip in ROUND_TRIPS {
        for loss in LOSSES {
            let transfer = download(congestion, path(round_trip, loss), 6e6);
            let time = transfer.run().time.as_secs_f64();
            let share = least_time(&transfer) / time;
            assert!(share >= least, "{share:.3} in {time} s: {transfer:?}");
        }
    }
}

#[test]
fn cubic_reaches_two_thirds_of_its_bound() {
    assert_least_share(CongestionControl::Cubic, 0.66);
}

#[test]
fn bbr_reaches_half_of_its_bound() {
    assert_least_share(CongestionControl::Bbr, 0.5);
}

#[test]
fn bbr_does_not_flood_a_path_at_the_start() {
    for round_trip in ROUND_TRIPS {
        let transfer = download(CongestionControl::Bbr, path(round_trip, 0.0), 20e6);
        let Outcome { sent, lost, .. } = transfer.run();
        assert!(lost * 5 < sent, "{lost} of {sent}: {round_trip:?}");
    }
}

#[test]
fn packets_out_of_order_cost_at_most_what_lost_ones_cost() {
    for congestion in [CongestionControl::Cubic, CongestionControl::Bbr] {
        for (reordering, duplication) in [(0.01, 0.0), (0.0, 0.03), (0.01, 0.03)] {
            let path = path(Duration::from_millis(20), 0.0);
            let path = PathSettings {
                reordering,
                duplication,
                ..path
            };
            let transfer = download(congestion, path, 6e6);
            let lossy = PathSettings {
                loss: reordering,
                ..path
            };
            let lossy = Transfer {
                path: lossy,
                ..transfer.clone()
            };
            let time = transfer.run().time.as_secs_f64();
            let least = least_time(&lossy);
            assert!(time * 0.66 <= least, "{time} {least}: {transfer:?}");
        }
    }
}

#[test]
fn an_upload_survives_that_a_queue_drops_many_packets() {
    for (mbit, round_trip) in [(100.0, 200), (200.0, 100)] {
        let rate = mbit * MBIT;
        let round_trip = Duration::from_millis(round_trip);
        let transfer = Transfer {
            path: PathSettings {
                round_trip,
                rate,
                queue: rate * round_trip.as_secs_f64() * 0.3,
                loss: 0.0,
                reordering: 0.0,
                duplication: 0.0,
            },
            settings: QuicSettings {
                stream_receive_window: LARGEST_STREAM_RECEIVE_WINDOW,
                ..settings(CongestionControl::Cubic)
            },
            body: 20_000_000,
            seed: 1,
        };
        transfer.run();
    }
}

#[test]
#[ignore = "prints a table, which takes minutes"]
fn table_of_goodput() {
    println!("| round trip | loss | CUBIC | bound | BBR | bound |");
    println!("| ---: | ---: | ---: | ---: | ---: | ---: |");
    for round_trip in ROUND_TRIPS {
        for loss in LOSSES {
            print!("| {} ms | {:.1}% ", round_trip.as_millis(), loss * 100.0);
            for congestion in [CongestionControl::Cubic, CongestionControl::Bbr] {
                let transfer = download(congestion, path(round_trip, loss), 100e6);
                let body = transfer.body as f64;
                for seconds in [transfer.run().time.as_secs_f64(), least_time(&transfer)] {
                    print!("| {:.2} ", body / seconds / MBIT);
                }
            }
            println!("|");
        }
    }
}
