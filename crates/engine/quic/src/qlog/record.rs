//! Events as records of qlog: their names and data.

use std::net::SocketAddr;
use std::time::Duration;

use apus_quic_protocol::{
    CongestionPhase, ConnectionEnd, ConnectionId, Dir, DropReason, KeyUpdateReason, LossReason,
    ObservedEnd, ObservedEvent, ObservedFrame, ObservedPacket, ObservedParameters, PacketKind,
    RecoveryMetrics, Side, StreamId,
};
use serde_json::{Value, json};

/// The schemas of the events. The number is that of the draft, whose URN has none once it is an RFC.
const EVENT_SCHEMAS: [&str; 2] = [
    "urn:ietf:params:qlog:events:quic-13",
    "urn:ietf:params:qlog:events:loglevel",
];

/// A record without its time.
pub(super) struct Record {
    pub(super) name: &'static str,
    pub(super) data: Value,
}

/// The first record of a file.
pub(super) fn header(side: Side, original_destination: ConnectionId) -> Value {
    json!({
        "file_schema": "urn:ietf:params:qlog:file:sequential",
        "serialization_format": "application/qlog+json-seq",
        "trace": {
            "common_fields": {
                "group_id": hex(&original_destination),
                "time_format": "relative_to_epoch",
                "reference_time": {"clock_type": "system", "epoch": "1970-01-01T00:00:00.000Z"},
            },
            "vantage_point": {"type": vantage_point(side)},
            "event_schemas": EVENT_SCHEMAS,
        },
    })
}

/// The name of an end.
pub(super) fn vantage_point(side: Side) -> &'static str {
    match side {
        Side::Client => "client",
        Side::Server => "server",
    }
}

/// A time as qlog has it.
pub(super) fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}

/// The records of an event.
pub(super) fn records(event: &ObservedEvent) -> Vec<Record> {
    let one = |name, data| vec![Record { name, data }];
    match event {
        ObservedEvent::Started {
            version,
            remote,
            local_id,
            remote_id,
        } => {
            let mut peer = address(*remote);
            put(&mut peer, "connection_ids", json!([hex(remote_id)]));
            let ends = json!({"local": {"connection_ids": [hex(local_id)]}, "remote": peer});
            let version = json!({"chosen_version": format!("{:08x}", version.number())});
            vec![
                Record {
                    name: "quic:connection_started",
                    data: ends,
                },
                Record {
                    name: "quic:version_information",
                    data: version,
                },
            ]
        }
        ObservedEvent::ParametersSet {
            is_local,
            parameters,
        } => one(
            "quic:parameters_set",
            parameters_data(initiator(*is_local), parameters),
        ),
        ObservedEvent::PacketSent(packet) => one("quic:packet_sent", packet_data(packet)),
        ObservedEvent::PacketReceived(packet) => one("quic:packet_received", packet_data(packet)),
        ObservedEvent::PacketDropped { kind, size, reason } => {
            let mut data = json!({"raw": {"length": size}, "trigger": drop_trigger(*reason)});
            if let Some(kind) = kind {
                put(
                    &mut data,
                    "header",
                    json!({"packet_type": packet_type(*kind)}),
                );
            }
            one("quic:packet_dropped", data)
        }
        ObservedEvent::PacketLost {
            kind,
            number,
            reason,
            is_mtu_probe,
        } => one(
            "quic:packet_lost",
            json!({
                "header": {"packet_type": packet_type(*kind), "packet_number": number},
                "is_mtu_probe_packet": is_mtu_probe,
                "trigger": match reason {
                    LossReason::Reordering => "reordering_threshold",
                    LossReason::Time => "time_threshold",
                },
            }),
        ),
        ObservedEvent::MetricsUpdated(metrics) => {
            one("quic:recovery_metrics_updated", metrics_data(metrics))
        }
        ObservedEvent::CongestionStateUpdated { old, new } => {
            let mut data = json!({"new": phase_name(*new)});
            if let Some(old) = old {
                put(&mut data, "old", phase_name(*old).into());
            }
            one("quic:congestion_state_updated", data)
        }
        ObservedEvent::KeyUpdated {
            kind,
            phase,
            reason,
        } => key_records(*kind, *phase, *reason),
        ObservedEvent::Closed(end) => one("quic:connection_closed", end_data(end)),
        // An event of a later version of the protocol.
        _ => Vec::new(),
    }
}

/// The keys of both directions change at once.
fn key_records(kind: PacketKind, phase: u64, reason: KeyUpdateReason) -> Vec<Record> {
    let trigger = match reason {
        KeyUpdateReason::Tls => "tls",
        KeyUpdateReason::Local => "local_update",
        KeyUpdateReason::Remote => "remote_update",
    };
    let level = match kind {
        PacketKind::Initial => "initial",
        PacketKind::Handshake => "handshake",
        PacketKind::ZeroRtt => "0rtt",
        _ => "1rtt",
    };
    ["client", "server"]
        .into_iter()
        .map(|end| {
            let mut data = json!({"key_type": format!("{end}_{level}_secret"), "trigger": trigger});
            if kind == PacketKind::OneRtt {
                put(&mut data, "key_phase", phase.into());
            }
            Record {
                name: "quic:key_updated",
                data,
            }
        })
        .collect()
}

fn packet_data(packet: &ObservedPacket) -> Value {
    let mut header = json!({
        "packet_type": packet_type(packet.kind),
        "dcid": hex(&packet.destination),
    });
    if let Some(number) = packet.number {
        put(&mut header, "packet_number", number.into());
    }
    if let Some(source) = &packet.source {
        put(&mut header, "scid", hex(source).into());
    }
    let frames: Vec<Value> = packet.frames.iter().map(frame_data).collect();
    json!({"header": header, "raw": {"length": packet.size}, "frames": frames})
}

fn frame_data(frame: &ObservedFrame) -> Value {
    // The draft asks for `length`, the value of the field of the frame.
    let raw = |length: u64| json!({"length": length, "payload_length": length});
    match frame {
        ObservedFrame::Padding { length } => {
            json!({"frame_type": "padding", "raw": {"payload_length": length}})
        }
        ObservedFrame::Ping => json!({"frame_type": "ping"}),
        ObservedFrame::Ack { ranges, delay, ecn } => {
            // In ascending order; the unit of the delay is that without a transport parameter.
            let ranges: Vec<_> = ranges.iter().rev().collect();
            let ranges: Vec<_> = ranges
                .into_iter()
                .map(|range| match (*range.start(), *range.end()) {
                    (first, last) if first == last => vec![first],
                    (first, last) => vec![first, last],
                })
                .collect();
            let mut data = json!({
                "frame_type": "ack",
                "ack_delay": milliseconds(Duration::from_micros(delay.saturating_mul(8))),
                "acked_ranges": ranges,
            });
            if let Some([ect0, ect1, ce]) = ecn {
                put(&mut data, "ect0", (*ect0).into());
                put(&mut data, "ect1", (*ect1).into());
                put(&mut data, "ce", (*ce).into());
            }
            data
        }
        ObservedFrame::ResetStream {
            stream,
            code,
            final_size,
        } => json!({
            "frame_type": "reset_stream", "stream_id": number(*stream), "error": "unknown",
            "error_code": code, "final_size": final_size,
        }),
        ObservedFrame::StopSending { stream, code } => json!({
            "frame_type": "stop_sending", "stream_id": number(*stream), "error": "unknown",
            "error_code": code,
        }),
        ObservedFrame::Crypto { offset, length } => {
            json!({"frame_type": "crypto", "offset": offset, "raw": raw(*length)})
        }
        ObservedFrame::NewToken { length } => {
            json!({"frame_type": "new_token", "token": {"raw": {"length": length}}})
        }
        ObservedFrame::Stream {
            stream,
            offset,
            length,
            fin,
        } => json!({
            "frame_type": "stream", "stream_id": number(*stream), "offset": offset, "fin": fin,
            "raw": raw(*length),
        }),
        ObservedFrame::MaxData(most) => json!({"frame_type": "max_data", "maximum": most}),
        ObservedFrame::MaxStreamData { stream, most } => json!({
            "frame_type": "max_stream_data", "stream_id": number(*stream), "maximum": most,
        }),
        ObservedFrame::MaxStreams { direction, most } => json!({
            "frame_type": "max_streams", "stream_type": stream_type(*direction), "maximum": most,
        }),
        ObservedFrame::DataBlocked { limit } => {
            json!({"frame_type": "data_blocked", "limit": limit})
        }
        ObservedFrame::StreamDataBlocked { stream, limit } => json!({
            "frame_type": "stream_data_blocked", "stream_id": number(*stream), "limit": limit,
        }),
        ObservedFrame::StreamsBlocked { direction, limit } => json!({
            "frame_type": "streams_blocked", "stream_type": stream_type(*direction),
            "limit": limit,
        }),
        // The stateless reset token is a secret of both ends, and is left out.
        ObservedFrame::NewConnectionId {
            sequence,
            retire_prior_to,
            id,
        } => json!({
            "frame_type": "new_connection_id", "sequence_number": sequence,
            "retire_prior_to": retire_prior_to, "connection_id_length": id.len(),
            "connection_id": hex(id),
        }),
        ObservedFrame::RetireConnectionId { sequence } => {
            json!({"frame_type": "retire_connection_id", "sequence_number": sequence})
        }
        ObservedFrame::PathChallenge(data) => {
            json!({"frame_type": "path_challenge", "data": hex(data)})
        }
        ObservedFrame::PathResponse(data) => {
            json!({"frame_type": "path_response", "data": hex(data)})
        }
        ObservedFrame::Close {
            by_application,
            code,
            reason,
        } => {
            let space = if *by_application {
                "application"
            } else {
                "transport"
            };
            let mut data = json!({
                "frame_type": "connection_close", "error_space": space,
                "reason": String::from_utf8_lossy(reason),
            });
            put_error(&mut data, "error", *by_application, *code);
            data
        }
        ObservedFrame::HandshakeDone => json!({"frame_type": "handshake_done"}),
    }
}

fn end_data(end: &ObservedEnd) -> Value {
    let mut data;
    match end {
        ObservedEnd::Local { code } => {
            data = json!({"initiator": "local", "trigger": "application"});
            put_error(&mut data, "application_error", true, *code);
        }
        ObservedEnd::Abandoned => data = json!({"initiator": "local", "trigger": "aborted"}),
        ObservedEnd::Ended(ConnectionEnd::VersionMismatch) => {
            data = json!({"initiator": "local", "trigger": "version_mismatch"});
        }
        ObservedEnd::Ended(ConnectionEnd::TimedOut) => {
            data = json!({"initiator": "local", "trigger": "idle_timeout"});
        }
        ObservedEnd::Ended(ConnectionEnd::Reset) => {
            data = json!({"initiator": "remote", "trigger": "stateless_reset"});
        }
        ObservedEnd::Ended(ConnectionEnd::Transport(error)) => {
            data = json!({"initiator": "local", "reason": error.reason, "trigger": "error"});
            put_error(&mut data, "connection_error", false, error.code.into());
        }
        ObservedEnd::Ended(ConnectionEnd::Peer { code, reason }) => {
            let reason = String::from_utf8_lossy(reason);
            data = json!({"initiator": "remote", "reason": reason, "trigger": "error"});
            put_error(&mut data, "connection_error", false, *code);
        }
        ObservedEnd::Ended(ConnectionEnd::Application { code, reason }) => {
            let reason = String::from_utf8_lossy(reason);
            data = json!({"initiator": "remote", "reason": reason, "trigger": "application"});
            put_error(&mut data, "application_error", true, *code);
        }
    }
    data
}

/// An error by its name, or by its code if it has none here.
fn put_error(data: &mut Value, key: &str, by_application: bool, code: u64) {
    let name = match (by_application, code) {
        (true, _) => None,
        (false, 0x100..=0x1ff) => Some(format!("crypto_error_{code:#x}")),
        (false, code) => usize::try_from(code)
            .ok()
            .and_then(|code| TRANSPORT_ERRORS.get(code))
            .map(|name| (*name).to_owned()),
    };
    match name {
        Some(name) => put(data, key, name.into()),
        None => {
            put(data, key, "unknown".into());
            put(data, "error_code", code.into());
        }
    }
}

/// The names of the error codes of the transport (RFC 9000 section 20.1).
const TRANSPORT_ERRORS: [&str; 17] = [
    "no_error",
    "internal_error",
    "connection_refused",
    "flow_control_error",
    "stream_limit_error",
    "stream_state_error",
    "final_size_error",
    "frame_encoding_error",
    "transport_parameter_error",
    "connection_id_limit_error",
    "protocol_violation",
    "invalid_token",
    "application_error",
    "crypto_buffer_exceeded",
    "key_update_error",
    "aead_limit_reached",
    "no_viable_path",
];

fn parameters_data(initiator: &str, parameters: &ObservedParameters) -> Value {
    let mut data = json!({
        "initiator": initiator,
        "max_idle_timeout": parameters.max_idle_timeout,
        "max_udp_payload_size": parameters.max_udp_payload_size,
        "ack_delay_exponent": parameters.ack_delay_exponent,
        "max_ack_delay": parameters.max_ack_delay,
        "active_connection_id_limit": parameters.active_connection_id_limit,
        "initial_max_data": parameters.max_data,
        "initial_max_stream_data_bidi_local": parameters.max_stream_data_bidi_local,
        "initial_max_stream_data_bidi_remote": parameters.max_stream_data_bidi_remote,
        "initial_max_stream_data_uni": parameters.max_stream_data_uni,
        "initial_max_streams_bidi": parameters.max_streams_bidi,
        "initial_max_streams_uni": parameters.max_streams_uni,
        "disable_active_migration": parameters.disable_active_migration,
        "grease_quic_bit": parameters.grease_quic_bit,
    });
    for (key, id) in [
        (
            "original_destination_connection_id",
            &parameters.original_destination,
        ),
        ("initial_source_connection_id", &parameters.initial_source),
        ("retry_source_connection_id", &parameters.retry_source),
    ] {
        if let Some(id) = id {
            put(&mut data, key, hex(id).into());
        }
    }
    data
}

fn metrics_data(metrics: &RecoveryMetrics) -> Value {
    json!({
        "min_rtt": milliseconds(metrics.min_rtt),
        "smoothed_rtt": milliseconds(metrics.smoothed_rtt),
        "latest_rtt": milliseconds(metrics.latest_rtt),
        "rtt_variance": milliseconds(metrics.rtt_variance),
        "pto_count": metrics.pto_count,
        "congestion_window": metrics.congestion_window,
        "bytes_in_flight": metrics.bytes_in_flight,
    })
}

fn address(address: SocketAddr) -> Value {
    match address {
        SocketAddr::V4(address) => {
            json!({"ip_v4": address.ip().to_string(), "port_v4": address.port()})
        }
        SocketAddr::V6(address) => {
            json!({"ip_v6": address.ip().to_string(), "port_v6": address.port()})
        }
    }
}

fn packet_type(kind: PacketKind) -> &'static str {
    match kind {
        PacketKind::Initial => "initial",
        PacketKind::ZeroRtt => "0RTT",
        PacketKind::Handshake => "handshake",
        PacketKind::Retry => "retry",
        PacketKind::OneRtt => "1RTT",
        PacketKind::VersionNegotiation => "version_negotiation",
    }
}

fn drop_trigger(reason: DropReason) -> &'static str {
    match reason {
        DropReason::Invalid => "invalid",
        DropReason::OtherVersion => "unsupported",
        DropReason::OtherConnection => "connection_unknown",
        DropReason::NoKeys => "key_unavailable",
        DropReason::Undecryptable => "decryption_failure",
        DropReason::Duplicate => "duplicate",
    }
}

fn phase_name(phase: CongestionPhase) -> &'static str {
    match phase {
        CongestionPhase::SlowStart => "slow_start",
        CongestionPhase::CongestionAvoidance => "congestion_avoidance",
        CongestionPhase::Drain => "drain",
        CongestionPhase::ProbeBandwidth => "probe_bandwidth",
        CongestionPhase::ProbeRtt => "probe_rtt",
    }
}

fn stream_type(direction: Dir) -> &'static str {
    match direction {
        Dir::Bi => "bidirectional",
        Dir::Uni => "unidirectional",
    }
}

fn initiator(is_local: bool) -> &'static str {
    if is_local { "local" } else { "remote" }
}

fn number(stream: StreamId) -> u64 {
    stream.into()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn put(object: &mut Value, key: &str, value: Value) {
    if let Some(object) = object.as_object_mut() {
        object.insert(key.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_have_names_where_the_rfc_has_one_and_codes_where_not() {
        let closed = |end| match &records(&ObservedEvent::Closed(end))[..] {
            [record] => record.data.clone(),
            _ => panic!("one record"),
        };
        let peer = |code| {
            closed(ObservedEnd::Ended(ConnectionEnd::Peer {
                code,
                reason: bytes::Bytes::from_static(b"why"),
            }))
        };
        assert_eq!(
            peer(0x0a),
            json!({
                "initiator": "remote", "reason": "why", "trigger": "error",
                "connection_error": "protocol_violation",
            })
        );
        assert_eq!(peer(0x12a)["connection_error"], "crypto_error_0x12a");
        assert_eq!(peer(0x4000)["connection_error"], "unknown");
        assert_eq!(peer(0x4000)["error_code"], 0x4000);
        assert_eq!(
            closed(ObservedEnd::Local { code: 0x100 }),
            json!({
                "initiator": "local", "trigger": "application",
                "application_error": "unknown", "error_code": 0x100,
            })
        );
    }

    #[test]
    fn ranges_of_an_acknowledgement_are_in_ascending_order() {
        let frame = ObservedFrame::Ack {
            ranges: vec![8..=9, 6..=6, 1..=4],
            delay: 125,
            ecn: Some([1, 0, 2]),
        };
        assert_eq!(
            frame_data(&frame),
            json!({
                "frame_type": "ack", "ack_delay": 1.0, "acked_ranges": [[1, 4], [6], [8, 9]],
                "ect0": 1, "ect1": 0, "ce": 2,
            })
        );
    }
}
