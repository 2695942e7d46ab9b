//! The open WebSockets of an application and their rooms.

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::topics::Topics;
use crate::wire::MessageFormat;

/// A command of an application for one of its WebSockets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SocketCommand {
    /// Sends a message.
    Send(MessageFormat, Bytes),
    /// Closes the socket, with a code of RFC 6455 section 7.4 and a reason.
    Close(u16, Bytes),
}

/// The commands of an application for one WebSocket.
#[derive(Debug)]
pub struct SocketCommands(pub(crate) mpsc::Receiver<SocketCommand>);

impl SocketCommands {
    /// The next command; `None` once there are no more: the application ends, or the client reads too
    /// slowly.
    pub async fn next(&mut self) -> Option<SocketCommand> {
        self.0.recv().await
    }
}

/// The open WebSockets of one application and their rooms, shared by all threads. A socket whose client reads
/// too slowly is removed.
#[derive(Debug, Default)]
pub(crate) struct Sockets {
    /// The sockets with the data that the application keeps for each.
    rooms: Topics<SocketCommand, Bytes>,
}

impl Sockets {
    pub(crate) fn add(&self) -> (Bytes, mpsc::Receiver<SocketCommand>) {
        self.rooms.add(Bytes::new())
    }

    pub(crate) fn remove(&self, id: &[u8]) {
        self.rooms.remove(id);
    }

    pub(crate) fn len(&self) -> usize {
        self.rooms.len()
    }

    /// The data that the application keeps for a socket.
    pub(crate) fn data(&self, id: &[u8]) -> Bytes {
        let data = self.rooms.with_data(id, |data| data.clone());
        data.unwrap_or_default()
    }

    pub(crate) fn set_data(&self, id: &[u8], data: Bytes) {
        self.rooms.with_data(id, |kept| *kept = data);
    }

    pub(crate) fn join(&self, room: Bytes, id: Bytes) {
        self.rooms.join(room, id);
    }

    pub(crate) fn leave(&self, room: &[u8], id: &[u8]) {
        self.rooms.leave(room, id);
    }

    /// Sends a command to one socket, if it is open.
    pub(crate) fn send(&self, id: &[u8], command: SocketCommand) {
        self.rooms.send(id, command);
    }

    /// Sends a message to all sockets in a room.
    pub(crate) fn publish(&self, room: &[u8], format: MessageFormat, message: &Bytes) {
        if format != MessageFormat::EventStream {
            self.rooms
                .publish(room, || SocketCommand::Send(format, message.clone()));
        }
    }

    /// Ends all sockets.
    pub(crate) fn close(&self) {
        self.rooms.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topics::MAX_WAITING;

    #[test]
    fn a_room_reaches_its_sockets_with_messages_but_not_with_events() {
        let sockets = Sockets::default();
        let ((one, mut first), (two, mut second)) = (sockets.add(), sockets.add());
        assert_ne!(one, two);
        let room = Bytes::from_static(b"lobby");
        sockets.join(room.clone(), one.clone());
        sockets.join(room.clone(), two.clone());
        sockets.join(room.clone(), "nobody".into());
        sockets.leave(&room, &two);
        sockets.publish(&room, MessageFormat::Text, &"hi".into());
        sockets.publish(&room, MessageFormat::EventStream, &"data: x\n\n".into());
        assert_eq!(
            first.try_recv(),
            Ok(SocketCommand::Send(MessageFormat::Text, "hi".into()))
        );
        assert!(first.try_recv().is_err() && second.try_recv().is_err());
        sockets.remove(&one);
        assert_eq!(sockets.len(), 1);
    }

    #[test]
    fn a_socket_whose_client_reads_too_slowly_is_removed() {
        let sockets = Sockets::default();
        let (id, mut commands) = sockets.add();
        for _ in 0..=MAX_WAITING {
            sockets.send(&id, SocketCommand::Send(MessageFormat::Text, Bytes::new()));
        }
        assert_eq!(sockets.len(), 0);
        while commands.try_recv().is_ok() {}
        assert!(commands.is_closed());
    }

    #[test]
    fn the_data_of_a_socket_is_kept_until_it_ends() {
        let sockets = Sockets::default();
        let (id, _commands) = sockets.add();
        assert_eq!(sockets.data(&id), "");
        sockets.set_data(&id, "mine".into());
        assert_eq!(sockets.data(&id), "mine");
        sockets.close();
        assert_eq!(sockets.data(&id), "");
    }
}
