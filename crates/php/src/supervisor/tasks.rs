//! Tasks and timers of an application.
//!
//! They wait in the same queue as requests, so that neither starves.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use apus_http::{Body, Method};
use bytes::Bytes;

use crate::content::content;
use crate::error::Failure;
use crate::exchange::{Asked, Exchange};
use crate::request::{Upload, head};
use crate::shared::{Shared, count};
use crate::signal::Signal;
use crate::task::{Kind, Task, TaskDone};
use crate::wire::Message;

/// The tasks that wait, and the timers.
pub(super) struct Tasks {
    shared: Arc<Shared>,
    waiting: VecDeque<Task>,
    timers: Vec<Timer>,
    running: usize,
    last_id: u64,
}

struct Timer {
    name: Bytes,
    every: Duration,
    next: Instant,
    is_running: bool,
}

/// How long a task waits that found no worker.
const AGAIN: Duration = Duration::from_secs(1);

/// No timer is faster.
const FASTEST: Duration = Duration::from_millis(100);

impl Tasks {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        Self {
            shared: Arc::clone(shared),
            waiting: VecDeque::new(),
            timers: Vec::new(),
            running: 0,
            last_id: 0,
        }
    }

    /// Takes a task in, if there is room.
    pub(super) fn push(&mut self, name: Bytes, payload: Bytes, delay: Duration) {
        if self.waiting.len() >= self.shared.plan.tasks {
            count(&self.shared.totals.tasks_dropped);
            tracing::error!(
                pool = &*self.shared.plan.name,
                task = %name.escape_ascii(),
                waiting = self.waiting.len(),
                "too many tasks wait: one is dropped"
            );
            return;
        }
        self.last_id += 1;
        self.waiting.push_back(Task {
            name,
            payload,
            due: Instant::now() + delay,
            kind: Kind::Task { id: self.last_id },
        });
        self.start();
    }

    /// The timers that the application has now.
    pub(super) fn set_timers(&mut self, timers: &[(String, u32)]) {
        let now = Instant::now();
        let mut before = std::mem::take(&mut self.timers);
        for (name, milliseconds) in timers {
            let every = Duration::from_millis(u64::from(*milliseconds)).max(FASTEST);
            let known = before
                .iter()
                .position(|timer| timer.name == name.as_bytes() && timer.every == every);
            // One that goes on does not begin anew with each worker.
            self.timers.push(match known {
                Some(place) => before.swap_remove(place),
                None => Timer {
                    name: name.clone().into(),
                    every,
                    next: now + every,
                    is_running: false,
                },
            });
        }
    }

    /// Begins what is due.
    pub(super) fn tick(&mut self) {
        let now = Instant::now();
        for timer in &mut self.timers {
            if now < timer.next {
                continue;
            }
            timer.next = now + timer.every;
            // One that takes longer than its period is left out meanwhile.
            if !std::mem::replace(&mut timer.is_running, true) {
                self.waiting.push_back(Task {
                    name: timer.name.clone(),
                    payload: Bytes::new(),
                    due: now,
                    kind: Kind::Timer,
                });
            }
        }
        self.start();
    }

    /// When something is due next that can be begun.
    pub(super) fn next(&self) -> Option<Instant> {
        let waiting = self.waiting.iter().map(|task| task.due);
        // What waits for another to be done is begun then.
        let waiting = waiting.filter(|_| self.running < self.most());
        waiting
            .chain(self.timers.iter().map(|timer| timer.next))
            .min()
    }

    /// How many workers do tasks at once: half of them.
    fn most(&self) -> usize {
        (self.shared.plan.max / 2).max(1)
    }

    pub(super) fn done(&mut self, done: TaskDone) {
        self.running = self.running.saturating_sub(1);
        let TaskDone {
            mut task,
            is_untouched,
        } = done;
        if is_untouched {
            task.due = Instant::now() + AGAIN;
            self.waiting.push_front(task);
        } else if task.kind == Kind::Timer
            && let Some(timer) = self.timers.iter_mut().find(|timer| timer.name == task.name)
        {
            timer.is_running = false;
        }
        self.start();
    }

    /// Has workers do what is due.
    fn start(&mut self) {
        let now = Instant::now();
        while self.running < self.most()
            && let Some(place) = self.waiting.iter().position(|task| task.due <= now)
            && let Some(task) = self.waiting.remove(place)
        {
            self.running += 1;
            let shared = Arc::clone(&self.shared);
            tokio::task::spawn_local(async move {
                let is_untouched = perform(&shared, &task).await;
                shared.signal(Signal::TaskDone(TaskDone { task, is_untouched }));
            });
        }
    }
}

/// Has a worker do it. Tells whether none began.
async fn perform(shared: &Arc<Shared>, task: &Task) -> bool {
    let failed = |cause: &dyn std::fmt::Display| {
        tracing::error!(
            pool = &*shared.plan.name,
            task = %task.name.escape_ascii(),
            %cause,
            "a task failed"
        );
    };
    let mut message = Message::event(64);
    match task.kind {
        Kind::Task { id } => {
            message.push(b"kind", b"task");
            message.push(b"id", id.to_string().as_bytes());
        }
        Kind::Timer => message.push(b"kind", b"timer"),
    }
    message.push_target(b"name", &task.name);
    let upload = Upload::Inline([task.payload.clone()].into_iter().collect());
    if let Err(error) = message.finish(upload.content(), false) {
        failed(&error);
        return false;
    }
    let lease = match shared.lease().await {
        Ok(lease) => lease,
        Err(Failure::Stopping) => return false,
        Err(_) => return true,
    };
    let Some(connection) = lease.begin() else {
        return true;
    };
    let asked = Asked {
        message,
        method: Method::POST,
        id: None,
        socket: None,
    };
    let exchange = Exchange::new(Arc::clone(shared), connection, asked, upload);
    let (exchange, answer) = match exchange.run().await {
        Ok(answered) => answered,
        Err(broken) if broken.is_untouched => return true,
        Err(broken) => {
            failed(&broken.failure);
            return false;
        }
    };
    let head = match head(&answer, false) {
        Ok(head) => head,
        Err(error) => {
            failed(&error);
            return false;
        }
    };
    if !head.status.is_success() {
        failed(&format_args!("status {}", head.status.as_u16()));
    }
    let mut body: Body = content(exchange, head.content, &answer);
    while let Some(Ok(_)) = body.frame().await {}
    false
}
