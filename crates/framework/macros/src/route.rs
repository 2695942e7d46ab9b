//! The expansion of a route attribute: the unchanged function, and a type of the same name that declares the route.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Error, Expr, Ident, ItemFn, Lit, Meta, parse2};

use crate::attribute::{Attribute, RouteKind};
use crate::signature;

/// Names of attributes that make routes.
const ATTRIBUTES: &[&str] = &["get", "post", "put", "patch", "delete", "route", "ws"];

/// Expands a route attribute. If the route is invalid, the function stays, so that the compiler reports no
/// errors about a missing function.
pub(crate) fn expand(
    kind: RouteKind,
    arguments: TokenStream,
    function: TokenStream,
) -> TokenStream {
    let made = parse2::<ItemFn>(function.clone())
        .map_err(|error| Error::new(error.span(), "a route is a function"))
        .and_then(|item| declare(kind, arguments, &item));
    let declared = made.unwrap_or_else(Error::into_compile_error);
    quote!(#function #declared)
}

fn declare(kind: RouteKind, arguments: TokenStream, function: &ItemFn) -> syn::Result<TokenStream> {
    let attribute: Attribute = parse2(arguments)?;
    for other in &function.attrs {
        let name = other
            .path()
            .segments
            .last()
            .map(|last| last.ident.to_string());
        if name.is_some_and(|name| ATTRIBUTES.contains(&name.as_str())) {
            let message = "a function has one route; for several methods there is \
                           `#[route(\"/path\", methods = [GET, POST])]`";
            return Err(Error::new(other.span(), message));
        }
    }
    let methods = kind.methods(&attribute)?;
    let types = signature::arguments(function)?;
    signature::check_path(&types, &attribute.path)?;

    let ident = &function.sig.ident;
    let visibility = &function.vis;
    let path = &attribute.path.literal;
    let (handler, checks, described) = match kind {
        RouteKind::WebSocket => socket(function, &types)?,
        _ => {
            let mut checks = signature::checks(&types);
            checks.extend(signature::check_response(function));
            let probe = quote!(::apus::attributes::requirement::HandlerProbe(#ident).handler());
            (probe, checks, types)
        }
    };
    // The router reports the place of this call if two routes conflict.
    let mut add = quote_spanned!(path.span()=> app);
    for (index, method) in methods.iter().enumerate() {
        add = quote_spanned!(path.span()=> #add.route(::apus::Method::#method, #path, #handler));
        if let (0, Some(name)) = (index, &attribute.name) {
            add = quote_spanned!(path.span()=> #add.name(#name));
        }
    }
    let names = methods.iter().map(ToString::to_string);
    let describe = describe(function, &described);
    Ok(quote! {
        #[doc(hidden)]
        #[allow(non_camel_case_types, dead_code)]
        #visibility struct #ident {}

        const _: () = {
            #[allow(dead_code)]
            fn check() {
                #checks
            }

            impl ::apus::attributes::RouteFunction for #ident {
                const ROUTE: ::apus::attributes::DeclaredRoute =
                    ::apus::attributes::DeclaredRoute::new(::apus::attributes::RouteDeclaration {
                        methods: &[#(#names),*],
                        path: #path,
                        function: ::core::stringify!(#ident),
                        module: ::core::module_path!(),
                        file: ::core::file!(),
                        line: ::core::line!(),
                        add: |app| {
                            #[allow(unused_imports)]
                            use ::apus::attributes::requirement::{RightHandler as _, WrongHandler as _};
                            #add
                        },
                        #describe
                    });
            }

            ::apus::attributes::inventory::submit! {
                <#ident as ::apus::attributes::RouteFunction>::ROUTE
            }
        };
    })
}

/// The handler that upgrades to a WebSocket and runs the function with it.
fn socket<'a>(
    function: &ItemFn,
    types: &[&'a syn::Type],
) -> syn::Result<(TokenStream, TokenStream, Vec<&'a syn::Type>)> {
    let ident = &function.sig.ident;
    if function.sig.asyncness.is_none() {
        let message = "the function of a WebSocket is an `async fn`";
        return Err(Error::new(function.sig.fn_token.span(), message));
    }
    let Some((first, rest)) = types.split_first() else {
        let message = "the first argument is the WebSocket: `socket: WebSocket`";
        return Err(Error::new(ident.span(), message));
    };
    let mut checks = quote_spanned!(first.span()=> ::apus::attributes::check::socket::<#first>(););
    let names: Vec<_> = (0..rest.len())
        .map(|index| format_ident!("argument_{index}"))
        .collect();
    for argument in rest {
        checks.extend(signature::check_argument(argument, &quote!(HeadCheck)));
    }
    // Names of this code, so that the function may be called `socket`.
    let [upgrade, socket] = ["upgrade", "socket"].map(|name| Ident::new(name, Span::mixed_site()));
    let handler = quote! {
        |#upgrade: ::apus::WebSocketUpgrade, #(#names: #rest),*| {
            #upgrade.run(move |#socket| #ident(#socket, #(#names),*))
        }
    };
    Ok((handler, checks, rest.to_vec()))
}

/// The description of a handler for OpenAPI.
fn describe(function: &ItemFn, types: &[&syn::Type]) -> TokenStream {
    if !cfg!(feature = "openapi") {
        return TokenStream::new();
    }
    let text = documentation(function);
    let returned = match (&function.sig.output, signature::returned(function)) {
        (syn::ReturnType::Default, _) => quote!(()),
        (_, Some(returned)) => quote!(#returned),
        (_, None) => quote!(::apus::openapi::UnnamedResponse),
    };
    quote! {
        describe: |operation| {
            #[allow(unused_imports)]
            use ::apus::openapi::probe::{ProbeArgument as _, ProbeResponse as _, TypeProbe, ProbeFallback as _};
            operation.documentation(#text);
            #((&TypeProbe::<#types>::new()).argument(operation);)*
            (&TypeProbe::<#returned>::new()).response(operation);
        },
    }
}

/// The documentation of a function, without the leading space of each line.
fn documentation(function: &ItemFn) -> String {
    let lines = function.attrs.iter().filter_map(|attribute| {
        let Meta::NameValue(pair) = &attribute.meta else {
            return None;
        };
        match &pair.value {
            Expr::Lit(literal) if pair.path.is_ident("doc") => match &literal.lit {
                Lit::Str(text) => Some(text.value()),
                _ => None,
            },
            _ => None,
        }
    });
    let lines: Vec<String> = lines
        .map(|line| line.strip_prefix(' ').unwrap_or(&line).to_owned())
        .collect();
    lines.join("\n")
}
