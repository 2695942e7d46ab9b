//! Chat rooms: a page, a WebSocket for each visitor, and the last lines of a room for new visitors.

#![forbid(unsafe_code)]

mod history;

use apus::websocket::{Receiver, Sender, WebSocketSettings};
use apus::{
    App, Html, IntoResponse, Path, Query, Response, Rooms, State, StatusCode, WebSocketUpgrade,
};
use serde::{Deserialize, Serialize};

use history::History;

/// The state that all visitors share.
#[derive(Clone, Default)]
struct Chat {
    rooms: Rooms,
    history: History,
}

/// The parameters of a visitor.
#[derive(Deserialize)]
struct Visitor {
    name: String,
}

/// A message to visitors.
#[derive(Clone, Debug, Serialize)]
struct Line {
    /// The number of the line in its room. A visitor who joins may get a line twice: in the last lines, and
    /// when it is published.
    number: u64,
    name: String,
    #[serde(flatten)]
    what: What,
}

#[derive(Clone, Debug, Serialize)]
#[serde(tag = "what", content = "text", rename_all = "lowercase")]
enum What {
    Joined,
    Said(String),
    Left,
}

/// The most characters of the name of a visitor or a room.
const LONGEST_NAME: usize = 32;
/// The most bytes of a message.
const LONGEST_TEXT: usize = 4000;

/// The application.
pub fn app() -> App {
    App::new()
        .get("/", async || Html(include_str!("page.html")))
        .get("/rooms/{room}", enter)
        .state(Chat::default())
}

async fn enter(
    State(chat): State<Chat>,
    Path(room): Path<String>,
    Query(visitor): Query<Visitor>,
    upgrade: WebSocketUpgrade,
) -> Response {
    let name = visitor.name.trim().to_owned();
    for text in [&room, &name] {
        if text.is_empty() || text.chars().count() > LONGEST_NAME {
            return (
                StatusCode::BAD_REQUEST,
                "rooms and visitors have names of 1 to 32 characters\n",
            )
                .into_response();
        }
    }
    let settings = WebSocketSettings {
        max_message: LONGEST_TEXT,
        ..WebSocketSettings::default()
    };
    upgrade.settings(settings).run(async move |socket| {
        let (receiver, sender) = socket.split();
        chat.visit(&room, name, receiver, sender).await;
    })
}

impl Chat {
    /// Runs a visit, until the connection ends.
    async fn visit(&self, room: &str, name: String, mut receiver: Receiver, sender: Sender) {
        // Joins before it reads the last lines, so that no line is missed.
        self.rooms.join(room, &sender);
        for line in self.history.of(room) {
            if sender.send(json(&line)).await.is_err() {
                return;
            }
        }
        self.publish(room, &name, What::Joined).await;
        while let Some(message) = receiver.recv().await {
            match message.as_text().map(str::trim) {
                Some("") | None => {}
                Some(text) => self.publish(room, &name, What::Said(text.to_owned())).await,
            }
        }
        self.publish(room, &name, What::Left).await;
    }

    async fn publish(&self, room: &str, name: &str, what: What) {
        let line = self.history.add(room, name, what);
        self.rooms.publish(room, json(&line)).await;
    }
}

fn json(line: &Line) -> String {
    serde_json::to_string(line).unwrap_or_default()
}
