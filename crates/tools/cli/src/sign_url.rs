//! `apus sign-url`: links for locations with the key `signed_url`.

use apus_layers::auth::{Key, SignedUrls};

use crate::CommandError;
use crate::arguments::SignUrlArguments;
use crate::output::print;

/// Prints the link.
pub(crate) fn run(arguments: &SignUrlArguments) -> Result<(), CommandError> {
    let file = &arguments.key_file;
    let failed =
        |why: &dyn std::fmt::Display| CommandError::Failed(format!("{}: {why}", file.display()));
    let secret = std::fs::read(file).map_err(|error| failed(&error))?;
    let key = Key::new(secret.trim_ascii()).map_err(|error| failed(&error))?;
    let urls = SignedUrls::new(&key);
    let path = &arguments.url.path;
    let signed = match (arguments.expires_in, arguments.expires_at) {
        (Some(lifetime), _) => urls.sign_for(path, lifetime),
        (None, Some(second)) => urls.sign_until(path, second),
        (None, None) => urls.sign(path),
    };
    print(format!("{}{signed}\n", arguments.url.origin).as_bytes());
    Ok(())
}
