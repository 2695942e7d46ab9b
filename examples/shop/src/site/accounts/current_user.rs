//! `CurrentUser` and `Admin`: the user of a request, as an argument of handlers.

use apus::extract::{AsyncExtractor, Cookies};
use apus::layers::ClientInfo;
use apus::session::Session;
use apus::{IntoResponse, Method, Redirect, Response, Result, State, Target};
use serde::Serialize;

use super::Accounts;
use super::users::Member;

/// The name of the session value with the id of the user, and the generation of the password.
const USER: &str = "user";

/// The user who has logged in. Others are redirected to the log-in.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub(crate) struct CurrentUser(pub(crate) Member);

impl AsyncExtractor for CurrentUser {
    type Arguments = (
        Session,
        Cookies,
        ClientInfo,
        State<Accounts>,
        Method,
        Target,
    );
    type Rejection = Response;

    async fn extract(arguments: Self::Arguments) -> Result<Self, Response> {
        let (session, cookies, client, State(accounts), method, target) = arguments;
        match find(&session, &cookies, client, &accounts).await {
            Ok(Some(user)) => Ok(Self(user)),
            Ok(None) => {
                let next = match method {
                    Method::GET => format!("?next={}", encoded(target.path())),
                    _ => String::new(),
                };
                Err(Redirect::to(format!("/log-in{next}")).into_response())
            }
            Err(error) => Err(error.into_response()),
        }
    }
}

/// The user of the session, or of a log-in that is remembered.
async fn find(
    session: &Session,
    cookies: &Cookies,
    client: ClientInfo,
    accounts: &Accounts,
) -> Result<Option<Member>> {
    let known: Option<(i64, i64)> = session.get(USER).await?;
    if let Some((id, generation)) = known {
        let user = accounts.users.find(id).await?;
        // A new password ended this session.
        return Ok(user.filter(|user| user.generation == generation));
    }
    let Some(remembered) = accounts.remember.find(cookies, client).await? else {
        return Ok(None);
    };
    let user = accounts.users.find(remembered.account).await?;
    if let Some(user) = &user {
        start(session, user.id, user.generation)?;
    }
    Ok(user)
}

/// Logs a user in. The session gets a new id, which nobody else knows.
pub(super) fn start(session: &Session, id: i64, generation: i64) -> Result<()> {
    session.renew();
    session.insert(USER, (id, generation))?;
    Ok(())
}

/// A path as the value of a parameter.
fn encoded(path: &str) -> String {
    path.replace('%', "%25")
        .replace('&', "%26")
        .replace('+', "%2B")
}
