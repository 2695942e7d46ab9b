//! A chat of the members.

use apus::extract::Require;
use apus::template::{Page, Renderer, context};
use apus::websocket::WebSocketSettings;
use apus::{App, Response, Rooms, State, WebSocketUpgrade};
use serde::Serialize;

use super::PageParts;
use super::accounts::CurrentUser;

/// The most bytes of a message.
const LONGEST: usize = 2000;

/// The only room.
const ROOM: &str = "chat";

/// A message to all.
#[derive(Serialize)]
struct ChatLine<'a> {
    name: &'a str,
    text: &'a str,
}

/// Adds the routes.
pub(super) fn routes(app: App) -> App {
    app.group("/chat", |chat| {
        chat.layer(Require::<CurrentUser>::new())
            .state(Rooms::default())
            .get("/", page)
            .get("/socket", enter)
    })
}

async fn page(renderer: Renderer, page: PageParts) -> Page {
    renderer.page("chat.html", context! { page })
}

async fn enter(
    CurrentUser(user): CurrentUser,
    State(rooms): State<Rooms>,
    upgrade: WebSocketUpgrade,
) -> Response {
    let settings = WebSocketSettings {
        max_message: LONGEST,
        ..WebSocketSettings::default()
    };
    upgrade.settings(settings).run(async move |socket| {
        let (mut receiver, sender) = socket.split();
        rooms.join(ROOM, &sender);
        while let Some(message) = receiver.recv().await {
            let text = message.as_text().map_or("", str::trim);
            if !text.is_empty() {
                let name = &*user.name;
                let line = serde_json::to_string(&ChatLine { name, text });
                rooms.publish(ROOM, line.unwrap_or_default()).await;
            }
        }
    })
}
