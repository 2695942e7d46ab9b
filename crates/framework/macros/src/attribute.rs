//! The arguments of a route attribute: `"/users/{id}", name = "user", methods = [GET, POST]`.

use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Ident, LitStr, Token, bracketed};

use crate::path::RoutePath;

/// The kind of a route attribute.
#[derive(Clone, Copy)]
pub(crate) enum RouteKind {
    /// An attribute that is named after its method.
    Methods(&'static [&'static str]),
    /// `#[route]`, which lists its methods.
    Named,
    /// `#[ws]`.
    WebSocket,
}

/// The arguments of a route attribute.
pub(crate) struct Attribute {
    pub(crate) path: RoutePath,
    pub(crate) name: Option<LitStr>,
    pub(crate) methods: Option<Vec<Ident>>,
}

impl Parse for Attribute {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        if !input.peek(LitStr) {
            return Err(input.error("a route starts with its path: \"/users/{id}\""));
        }
        let path = RoutePath::read(input.parse()?)?;
        let mut attribute = Self {
            path,
            name: None,
            methods: None,
        };
        while !input.is_empty() {
            input.parse::<Token![,]>()?;
            if input.is_empty() {
                break;
            }
            let key: Ident = input.parse()?;
            input.parse::<Token![=]>()?;
            if key == "name" && attribute.name.is_none() {
                attribute.name = Some(input.parse()?);
            } else if key == "methods" && attribute.methods.is_none() {
                let list;
                bracketed!(list in input);
                let methods = Punctuated::<Ident, Token![,]>::parse_terminated(&list)?;
                attribute.methods = Some(methods.into_iter().collect());
            } else {
                let message = "a route takes its path, then `name = \"...\"`, and `#[route]` also \
                               `methods = [GET, POST]`";
                return Err(syn::Error::new(key.span(), message));
            }
        }
        Ok(attribute)
    }
}

impl RouteKind {
    /// The methods of the route.
    pub(crate) fn methods(self, attribute: &Attribute) -> syn::Result<Vec<Ident>> {
        let span = attribute.path.literal.span();
        match (self, &attribute.methods) {
            (Self::Methods(names), None) => {
                let names = names.iter();
                Ok(names.map(|name| Ident::new(name, span)).collect())
            }
            (Self::WebSocket, None) => Ok(vec![Ident::new("GET", span)]),
            (Self::Named, None) => {
                let message = "name the methods: `methods = [GET, POST]`";
                Err(syn::Error::new(span, message))
            }
            (Self::Named, Some(methods)) => {
                if methods.is_empty() {
                    return Err(syn::Error::new(span, "a route has at least one method"));
                }
                for (index, method) in methods.iter().enumerate() {
                    if !KNOWN.contains(&method.to_string().as_str()) {
                        let message = format!("a method is one of {}", KNOWN.join(", "));
                        return Err(syn::Error::new(method.span(), message));
                    }
                    if methods.iter().take(index).any(|other| other == method) {
                        let message = "the method is named twice";
                        return Err(syn::Error::new(method.span(), message));
                    }
                }
                Ok(methods.clone())
            }
            (_, Some(methods)) => {
                let span = methods.first().map_or(span, Ident::span);
                let message = "only `#[route]` takes methods; this attribute is one itself";
                Err(syn::Error::new(span, message))
            }
        }
    }
}

const KNOWN: &[&str] = &[
    "GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE",
];
