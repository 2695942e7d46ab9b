//! The layer that selects the language of a request.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use apus_handler::extract::Cookies;
use apus_handler::middleware::{Middleware, Next};
use apus_handler::{FromRequestHead, IntoResponse, ResponseMarker, RouteCheck};
use apus_http::{Request, ResponseFuture};

use crate::{Language, Translations, negotiation};

/// The cookie with the language that a visitor chose.
const COOKIE: &str = "language";

impl Translations {
    /// The layer that asks a function for the tag of the language first, and otherwise selects it as [`Translations`] does. The
    /// function takes an extractor, or a tuple of them, such as a session:
    ///
    /// ```
    /// use apus_handler::{HandlerService, Layered, Query};
    /// use apus_i18n::{Language, Translations};
    ///
    /// #[derive(serde::Deserialize)]
    /// struct Choice {
    ///     language: String,
    /// }
    ///
    /// let translations = Translations::new("en", "hello = Hello")?.and("de", "hello = Hallo")?;
    /// // `/?language=de`
    /// let chosen = translations
    ///     .chosen_by(async |choice: Option<Query<Choice>>| Some(choice?.0.language));
    /// let hello = HandlerService::new(async |language: Language| language.text("hello"));
    /// let service = Layered::new(hello).layer(chosen);
    /// # use apus_testkit::get;
    /// # assert_eq!(get("/").to(&service).text(), "Hello");
    /// # assert_eq!(get("/?language=de").to(&service).text(), "Hallo");
    /// # Ok::<(), apus_i18n::TranslationError>(())
    /// ```
    pub fn chosen_by<E, F, Chosen>(self, choose: F) -> ChosenLanguage<E, F>
    where
        E: FromRequestHead + 'static,
        F: Fn(E) -> Chosen + Send + Sync + 'static,
        Chosen: Future<Output = Option<String>> + 'static,
    {
        ChosenLanguage {
            translations: self,
            choose: Arc::new(choose),
            extractor: PhantomData,
        }
    }

    /// The language of a request by the cookie and the field of the client.
    fn of(&self, request: &Request) -> Language {
        let cookies = Cookies::of(request);
        let chosen = cookies.get(COOKIE).and_then(|tag| self.find(tag));
        let index = chosen.or_else(|| {
            let accepted = request.headers().get_str("accept-language")?;
            negotiation::negotiate(accepted, || self.languages())
        });
        self.at(index.unwrap_or(0))
    }
}

/// Passes a request on in a language.
fn call(mut request: Request, next: Next, language: Language) -> ResponseFuture {
    request.extensions_mut().insert(language.clone());
    next.call_and_change(request, move |mut response| {
        language.write_headers(response.headers_mut());
        response
    })
}

impl Middleware<ResponseMarker> for Translations {
    fn check(&self, route: &mut RouteCheck<'_>) {
        route.provide::<Language>();
    }

    fn call(&self, request: Request, next: Next) -> ResponseFuture {
        let language = self.of(&request);
        call(request, next, language)
    }
}

/// The layer of [`Translations::chosen_by`].
pub struct ChosenLanguage<E, F> {
    translations: Translations,
    choose: Arc<F>,
    extractor: PhantomData<fn(E)>,
}

impl<E, F, Chosen> Middleware<ResponseMarker> for ChosenLanguage<E, F>
where
    E: FromRequestHead + 'static,
    F: Fn(E) -> Chosen + Send + Sync + 'static,
    Chosen: Future<Output = Option<String>> + 'static,
{
    fn check(&self, route: &mut RouteCheck<'_>) {
        E::check(route);
        route.provide::<Language>();
    }

    fn call(&self, mut request: Request, next: Next) -> ResponseFuture {
        let rendering = next.rendering(&request);
        let translations = self.translations.clone();
        let choose = self.choose.clone();
        ResponseFuture::later(async move {
            let value = match next.extract::<E>(&mut request).await {
                Ok(value) => value,
                Err(rejection) => return rendering.apply(rejection.into_response()),
            };
            let chosen = choose(value).await;
            let chosen = chosen.and_then(|tag| translations.find(&tag));
            let language = match chosen {
                Some(index) => translations.at(index),
                None => translations.of(&request),
            };
            call(request, next, language).wait().await
        })
    }
}

impl<E, F> fmt::Debug for ChosenLanguage<E, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ChosenLanguage")
            .field(&self.translations)
            .finish()
    }
}
