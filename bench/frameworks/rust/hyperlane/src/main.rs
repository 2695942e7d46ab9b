//! The application with Hyperlane: `bench-hyperlane PORT`.

#![forbid(unsafe_code)]

use std::error::Error;

use hyperlane::{
    ACCEPT_LANGUAGE, APPLICATION_JSON, CLOSE, CONNECTION, CONTENT_TYPE, Context, Server,
    ServerConfig, ServerHook, Status, Stream,
};
use serde::Serialize;

/// What the client reads, as a request middleware finds out.
#[derive(Clone, Copy)]
struct Language(&'static str);

impl ServerHook for Language {
    async fn new(_: &mut Stream, ctx: &mut Context) -> Self {
        let accepted = ctx.get_request().try_get_header_back(ACCEPT_LANGUAGE);
        Self(
            if accepted.is_some_and(|accepted| accepted.starts_with("zh")) {
                "zh"
            } else {
                "en"
            },
        )
    }

    async fn handle(self, _: &mut Stream, ctx: &mut Context) -> Status {
        ctx.set_attribute("language", self);
        // Requests without a route get a 200 unless the status is set here.
        ctx.get_mut_response().set_status_code(404);
        Status::Continue
    }
}

/// Also sends the response, which is the task of the last response middleware.
struct ServedBy;

impl ServerHook for ServedBy {
    async fn new(_: &mut Stream, _: &mut Context) -> Self {
        Self
    }

    async fn handle(self, stream: &mut Stream, ctx: &mut Context) -> Status {
        if !ctx.get_request().is_enable_keep_alive() {
            ctx.get_mut_response().set_header(CONNECTION, CLOSE);
        }
        let response = ctx
            .get_mut_response()
            .set_header("x-served-by", "bench")
            .build();
        match stream.try_send(response).await {
            Ok(()) => Status::Continue,
            Err(_) => {
                stream.set_closed(true);
                Status::Reject
            }
        }
    }
}

struct Hello {
    language: Language,
    name: String,
}

impl ServerHook for Hello {
    async fn new(_: &mut Stream, ctx: &mut Context) -> Self {
        Self {
            language: ctx.get_attribute("language"),
            name: ctx.get_route_param("name"),
        }
    }

    async fn handle(self, _: &mut Stream, ctx: &mut Context) -> Status {
        let Self { language, name } = self;
        let text = match language {
            Language("zh") => format!("你好，{name}！"),
            _ => format!("Hello, {name}!"),
        };
        ctx.get_mut_response()
            .set_status_code(200)
            .set_header(CONTENT_TYPE, "text/plain; charset=utf-8")
            .set_body(text);
        Status::Continue
    }
}

#[derive(Serialize)]
struct Swift {
    id: u32,
    name: &'static str,
    language: &'static str,
}

struct Json {
    language: Language,
    id: Option<u32>,
}

impl ServerHook for Json {
    async fn new(_: &mut Stream, ctx: &mut Context) -> Self {
        Self {
            language: ctx.get_attribute("language"),
            id: ctx.get_route_param("id").parse().ok(),
        }
    }

    async fn handle(self, _: &mut Stream, ctx: &mut Context) -> Status {
        let response = ctx.get_mut_response();
        let Some(id) = self.id else {
            response.set_status_code(400);
            return Status::Continue;
        };
        match serde_json::to_vec(&Swift {
            id,
            name: "Apus apus",
            language: self.language.0,
        }) {
            Ok(json) => response
                .set_status_code(200)
                .set_header(CONTENT_TYPE, APPLICATION_JSON)
                .set_body(json),
            Err(_) => response.set_status_code(500),
        };
        Status::Continue
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let port = std::env::args().nth(1).ok_or("bench-hyperlane PORT")?;
    let mut config = ServerConfig::default();
    config.set_address(format!("127.0.0.1:{port}"));
    let mut server = Server::default();
    server
        .server_config(config)
        .request_middleware::<Language>()
        .response_middleware::<ServedBy>()
        .route::<Hello>("/hello/{name}")
        .route::<Json>("/json/{id}");
    let running = server.run().await.map_err(|error| format!("{error:?}"))?;
    running.wait().await;
    Ok(())
}
