//! A browser whose page a test reads and uses: Chromium by its DevTools protocol, Firefox by WebDriver BiDi.

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tungstenite::{Message, WebSocket};

use super::running_browser::RunningBrowser;
use crate::harness::{connect, wait_until};

/// How long a browser may take for a command.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(90);

/// The browsers that can be driven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BrowserKind {
    Chromium,
    Firefox,
}

/// A browser with one page.
pub(super) struct DrivenBrowser {
    kind: BrowserKind,
    socket: WebSocket<TcpStream>,
    /// The session of the page, or its context.
    page: String,
    last_id: u64,
    /// What the console of the page says is wrong.
    faults: Vec<String>,
    _browser: RunningBrowser,
}

impl DrivenBrowser {
    /// Starts a browser with a new profile.
    pub(super) fn start(kind: BrowserKind, profile: &Path) -> Self {
        let browser = match kind {
            BrowserKind::Chromium => RunningBrowser::chromium(profile, true, "about:blank"),
            BrowserKind::Firefox => RunningBrowser::driven_firefox(profile),
        };
        let (port, path) = wait_until("the browser can be driven", || endpoint(kind, profile));
        let stream = connect(([127, 0, 0, 1], port).into());
        stream.set_read_timeout(Some(COMMAND_TIMEOUT)).unwrap();
        let url = format!("ws://127.0.0.1:{port}{path}");
        let (socket, _) = tungstenite::client(url, stream).unwrap();
        let mut driven = Self {
            kind,
            socket,
            page: String::new(),
            last_id: 0,
            faults: Vec::new(),
            _browser: browser,
        };
        driven.page = driven.attach();
        driven
    }

    /// Begins to listen to the page, and returns its session or context.
    fn attach(&mut self) -> String {
        match self.kind {
            BrowserKind::Chromium => {
                let targets = self.send("Target.getTargets", json!({}));
                let targets = targets["targetInfos"].as_array().unwrap().iter();
                let page = targets.clone().find(|target| target["type"] == "page");
                let target = page.unwrap()["targetId"].clone();
                let attached = self.send(
                    "Target.attachToTarget",
                    json!({ "targetId": target, "flatten": true }),
                );
                self.page = attached["sessionId"].as_str().unwrap().to_owned();
                for domain in ["Page", "Runtime", "Log"] {
                    self.send(&format!("{domain}.enable"), json!({}));
                }
                std::mem::take(&mut self.page)
            }
            BrowserKind::Firefox => {
                self.send("session.new", json!({ "capabilities": {} }));
                let events = json!({ "events": ["log.entryAdded"] });
                self.send("session.subscribe", events);
                let tree = self.send("browsingContext.getTree", json!({}));
                tree["contexts"][0]["context"].as_str().unwrap().to_owned()
            }
        }
    }

    /// Sends a command and returns its result.
    fn send(&mut self, method: &str, parameters: Value) -> Value {
        self.last_id += 1;
        let id = self.last_id;
        let mut command = json!({ "id": id, "method": method, "params": parameters });
        if self.kind == BrowserKind::Chromium && !self.page.is_empty() {
            command["sessionId"] = self.page.clone().into();
        }
        let text = command.to_string();
        self.socket.send(Message::text(text)).unwrap();
        loop {
            let message = self.socket.read().unwrap();
            let Message::Text(text) = message else {
                continue;
            };
            let mut message: Value = serde_json::from_str(&text).unwrap();
            if message["id"] == id {
                let result = message["result"].take();
                assert!(result.is_object(), "{method}: {message}");
                return result;
            }
            self.faults.extend(fault(&message));
        }
    }

    pub(super) fn open(&mut self, url: &str) {
        match self.kind {
            BrowserKind::Chromium => {
                self.send("Page.navigate", json!({ "url": url }));
            }
            BrowserKind::Firefox => {
                let parameters = json!({ "context": self.page, "url": url, "wait": "complete" });
                self.send("browsingContext.navigate", parameters);
            }
        }
    }

    pub(super) fn set_size(&mut self, width: u32, height: u32) {
        match self.kind {
            BrowserKind::Chromium => self.send(
                "Emulation.setDeviceMetricsOverride",
                json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500 }),
            ),
            BrowserKind::Firefox => self.send(
                "browsingContext.setViewport",
                json!({ "context": self.page, "viewport": { "width": width, "height": height } }),
            ),
        };
    }

    /// The value of an expression in the page, as JSON.
    pub(super) fn value(&mut self, expression: &str) -> Value {
        let found = self.try_value(expression);
        found.unwrap_or_else(|fault| panic!("{expression}: {fault}"))
    }

    fn try_value(&mut self, expression: &str) -> Result<Value, Value> {
        let expression = format!("JSON.stringify(({expression}) ?? null)");
        let result = match self.kind {
            BrowserKind::Chromium => self.send(
                "Runtime.evaluate",
                json!({ "expression": expression, "returnByValue": true }),
            ),
            BrowserKind::Firefox => self.send(
                "script.evaluate",
                json!({ "expression": expression, "target": { "context": self.page }, "awaitPromise": false }),
            ),
        };
        let text = result["result"]["value"].as_str();
        let text = text.ok_or_else(|| result.clone())?;
        Ok(serde_json::from_str(text).unwrap())
    }

    /// Waits until an expression in the page is true. While another page loads, it has no value.
    pub(super) fn wait(&mut self, what: &str, expression: &str) {
        wait_until(what, || self.try_value(expression) == Ok(Value::Bool(true)));
    }

    /// What the console has said since the last time.
    pub(super) fn take_faults(&mut self) -> Vec<String> {
        std::mem::take(&mut self.faults)
    }
}

/// Where a browser can be driven: its port and a path. `None`: not yet.
fn endpoint(kind: BrowserKind, profile: &Path) -> Option<(u16, String)> {
    match kind {
        BrowserKind::Chromium => {
            let text = fs::read_to_string(profile.join("DevToolsActivePort")).ok()?;
            let (port, path) = text.split_once('\n')?;
            (!path.is_empty()).then(|| (port.parse().unwrap(), path.to_owned()))
        }
        BrowserKind::Firefox => {
            let text = fs::read_to_string(profile.join("WebDriverBiDiServer.json")).ok()?;
            let server: Value = serde_json::from_str(&text).ok()?;
            let port = server["ws_port"].as_u64()?;
            Some((u16::try_from(port).unwrap(), "/session".to_owned()))
        }
    }
}

/// What an event of the browser says is wrong with the page.
fn fault(event: &Value) -> Option<String> {
    let parameters = &event["params"];
    let is_fault = match event["method"].as_str()? {
        "Log.entryAdded" => parameters["entry"]["level"] == "error",
        "Runtime.consoleAPICalled" => parameters["type"] == "error",
        "Runtime.exceptionThrown" => true,
        "log.entryAdded" => parameters["level"] == "error",
        _ => false,
    };
    is_fault.then(|| parameters.to_string())
}
