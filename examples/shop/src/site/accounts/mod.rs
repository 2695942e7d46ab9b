//! Accounts: sign-up, log-in, reset of passwords. `apus new --with login` makes the same.
//!
//! Whether an address has an account, no page reveals: what depends on it is told by mail, and done after the response.

mod current_user;
mod log_in;
mod mails;
mod set_password;
mod sign_up;
mod users;

use apus::account::{AccountTokens, RememberMe, SqlTokens};
use apus::layers::RateLimit;
use apus::mail::Mailer;
use apus::{App, HandlerExt};

pub(crate) use current_user::CurrentUser;
use users::Members;

use crate::Services;

/// What the handlers of accounts need.
#[derive(Clone)]
pub(crate) struct Accounts {
    users: Members,
    tokens: AccountTokens,
    remember: RememberMe,
    mailer: Mailer,
    public_url: String,
    /// Limits the guesses of one account, from whatever addresses they come.
    guesses: RateLimit,
    /// Limits the mails to one address.
    mails: RateLimit,
}

/// Adds the routes.
pub(crate) fn routes(app: App, services: &Services) -> App {
    let tokens = AccountTokens::new(SqlTokens::new(services.db.clone()));
    let accounts = Accounts {
        users: Members::new(services.db.clone()),
        remember: RememberMe::new(tokens.clone()),
        tokens,
        mailer: services.mailer.clone(),
        public_url: services.public_url.clone(),
        guesses: RateLimit::per_hour(30),
        mails: RateLimit::per_hour(5),
    };
    // Limits the requests of one client.
    let limit = RateLimit::per_minute(20);
    app.state(accounts)
        .get("/sign-up", sign_up::form)
        .post("/sign-up", sign_up::send.with(limit.clone()))
        .get("/welcome", sign_up::welcome)
        .post("/welcome", sign_up::confirm.with(limit.clone()))
        .get("/log-in", log_in::form)
        .post("/log-in", log_in::log_in.with(limit.clone()))
        .post("/log-out", log_in::log_out)
        .get("/forgot", set_password::forgot)
        .post("/forgot", set_password::send.with(limit.clone()))
        .get("/reset", set_password::form)
        .post("/reset", set_password::reset.with(limit))
}
