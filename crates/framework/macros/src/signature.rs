//! The signature of a handler, whose errors are reported at the argument.

use proc_macro2::TokenStream;
use quote::quote_spanned;
use syn::spanned::Spanned;
use syn::{Error, FnArg, GenericArgument, ItemFn, PathArguments, ReturnType, Type};

use crate::path::RoutePath;

/// The most arguments of a handler.
const MAX_ARGUMENTS: usize = 8;

/// Extractors that read the body of a request.
const BODY: &[&str] = &[
    "Body",
    "Bytes",
    "Form",
    "Json",
    "Multipart",
    "Request",
    "String",
    "Vec",
];

/// Extractors that read the head of a request.
const HEAD: &[&str] = &[
    "Extension",
    "HeaderMap",
    "Headers",
    "Method",
    "Path",
    "Peer",
    "Query",
    "State",
    "Target",
    "Urls",
];

/// The types of the arguments.
///
/// # Errors
/// The function cannot be a handler.
pub(crate) fn arguments(function: &ItemFn) -> syn::Result<Vec<&Type>> {
    let signature = &function.sig;
    if let Some(parameter) = signature.generics.params.first() {
        let message = "a handler has no type parameters: a route is one function";
        return Err(Error::new(parameter.span(), message));
    }
    let mut types = Vec::new();
    for argument in &signature.inputs {
        match argument {
            FnArg::Receiver(receiver) => {
                let message = "a handler is a function, not a method; take its state as `State<T>`";
                return Err(Error::new(receiver.span(), message));
            }
            FnArg::Typed(typed) => types.push(&*typed.ty),
        }
    }
    if let Some(argument) = types.get(MAX_ARGUMENTS) {
        let message = "a handler takes up to eight arguments; put values into one struct for \
                       `Path<T>`, `Query<T>` or `State<T>`";
        return Err(Error::new(argument.span(), message));
    }
    for (index, argument) in types.iter().enumerate() {
        let is_last = index + 1 == types.len();
        match argument {
            Type::Reference(reference) => {
                let owned = match name(&reference.elem) {
                    Some(name) if name == "str" => "String".to_owned(),
                    Some(name) => name,
                    None => "the type itself".to_owned(),
                };
                let message = format!("a handler owns its arguments: `{owned}`, not a reference");
                return Err(Error::new(argument.span(), message));
            }
            Type::ImplTrait(_) => {
                let message = "name the type of this argument: `Path<u32>`, `State<Database>`";
                return Err(Error::new(argument.span(), message));
            }
            _ => {}
        }
        if let Some(name) = name(argument)
            && BODY.contains(&name.as_str())
            && !is_last
        {
            let message = format!(
                "`{name}` reads the body of the request, so it has to be the last argument"
            );
            return Err(Error::new(argument.span(), message));
        }
    }
    Ok(types)
}

/// Compares `Path<T>` with the path of the route.
///
/// # Errors
/// The path has more or fewer parameters than `T`.
pub(crate) fn check_path(arguments: &[&Type], path: &RoutePath) -> syn::Result<()> {
    for argument in arguments {
        let Some(inner) = (name(argument).as_deref() == Some("Path"))
            .then(|| only_parameter(argument))
            .flatten()
        else {
            continue;
        };
        let takes = match inner {
            Type::Tuple(tuple) => tuple.elems.len(),
            inner if name(inner).is_some_and(|name| is_single(&name)) => 1,
            // A struct, by the names of its fields.
            _ => continue,
        };
        let has = path.parameters.len();
        if takes != has {
            let names = path.parameters.join("`, `");
            let message = match has {
                0 => "the path of this route has no parameter: write `{id}` where it stands".into(),
                _ => format!("the path has {has} parameters (`{names}`), and this takes {takes}"),
            };
            return Err(Error::new(argument.span(), message));
        }
    }
    Ok(())
}

fn is_single(name: &str) -> bool {
    matches!(
        name,
        "String"
            | "bool"
            | "char"
            | "f32"
            | "f64"
            | "i8"
            | "i16"
            | "i32"
            | "i64"
            | "i128"
            | "u8"
            | "u16"
            | "u32"
            | "u64"
            | "u128"
    )
}

/// Code that does not compile, with an error at the argument, if the argument is no extractor.
pub(crate) fn checks(arguments: &[&Type]) -> TokenStream {
    let last = arguments.len().saturating_sub(1);
    let checks = arguments.iter().enumerate().map(|(index, argument)| {
        let span = argument.span();
        let name = name(argument).unwrap_or_default();
        let reads_body = BODY.contains(&name.as_str());
        let check = if index < last || HEAD.contains(&name.as_str()) {
            quote_spanned!(span=> HeadCheck)
        } else if reads_body {
            quote_spanned!(span=> BodyCheck)
        } else {
            quote_spanned!(span=> LastCheck)
        };
        check_argument(argument, &check)
    });
    checks.collect()
}

/// Code that does not compile if an argument is not right: with an error about the type in it, if that is the reason, and else
/// about the argument, for which `check` is a trait.
pub(crate) fn check_argument(argument: &Type, check: &TokenStream) -> TokenStream {
    let span = argument.span();
    quote_spanned! {span=> {
        #[allow(unused_imports)]
        use ::apus::attributes::requirement::{
            AnyArgument as _, HeldArgument as _, KnownArgument as _, OtherArgument as _, UnheldArgument as _,
        };
        ::apus::attributes::requirement::Requirement::hold(
            (&::apus::attributes::requirement::ArgumentProbe::<#argument>::new()).inner()
        );
        ::apus::attributes::requirement::#check::check(
            (&&::apus::attributes::requirement::ArgumentProbe::<#argument>::new()).outer()
        );
    }}
}

/// Code that does not compile, with an error at the type, if the type is no response: about the type in it, if that is the
/// reason.
pub(crate) fn check_response(function: &ItemFn) -> TokenStream {
    let Some(returned) = returned(function) else {
        return TokenStream::new();
    };
    let span = returned.span();
    let check = match function.sig.asyncness {
        Some(_) => quote_spanned!(span=> ResponseCheck),
        None => quote_spanned!(span=> ReturnedCheck),
    };
    quote_spanned! {span=> {
        #[allow(unused_imports)]
        use ::apus::attributes::requirement::{
            AnyResponse as _, HeldResponse as _, KnownResponse as _, OtherResponse as _, UnheldResponse as _,
        };
        ::apus::attributes::requirement::Requirement::hold(
            (&::apus::attributes::requirement::ResponseProbe::<#returned>::new()).inner()
        );
        ::apus::attributes::requirement::#check::check(
            (&&::apus::attributes::requirement::ResponseProbe::<#returned>::new()).outer()
        );
    }}
}

/// The type that a function returns, if it has a name.
pub(crate) fn returned(function: &ItemFn) -> Option<&Type> {
    match &function.sig.output {
        ReturnType::Type(_, returned) if !matches!(**returned, Type::ImplTrait(_)) => {
            Some(returned)
        }
        _ => None,
    }
}

/// The last segment of the path of a type.
pub(crate) fn name(of: &Type) -> Option<String> {
    match of {
        Type::Path(path) => Some(path.path.segments.last()?.ident.to_string()),
        _ => None,
    }
}

/// `T` of `Path<T>`.
fn only_parameter(of: &Type) -> Option<&Type> {
    let Type::Path(path) = of else { return None };
    match &path.path.segments.last()?.arguments {
        PathArguments::AngleBracketed(arguments) => match arguments.args.first()? {
            GenericArgument::Type(inner) => Some(inner),
            _ => None,
        },
        _ => None,
    }
}
