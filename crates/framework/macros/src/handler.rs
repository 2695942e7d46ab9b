//! `#[handler]`: a handler without a route, and `#[handler(blocking)]`, which runs on another thread.

use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Error, FnArg, Ident, ItemFn, Pat, Type, parse2};

use crate::signature;

/// The function, and code by which the compiler checks its arguments.
pub(crate) fn expand(arguments: TokenStream, function: TokenStream) -> TokenStream {
    match expanded(arguments, &function) {
        Ok(expanded) => expanded,
        Err(error) => {
            let error = error.into_compile_error();
            quote!(#function #error)
        }
    }
}

fn expanded(arguments: TokenStream, function: &TokenStream) -> syn::Result<TokenStream> {
    let item: ItemFn = parse2(function.clone())
        .map_err(|error| Error::new(error.span(), "a handler is a function"))?;
    let is_blocking = if arguments.is_empty() {
        false
    } else {
        let message = "write `#[handler]` or `#[handler(blocking)]`";
        let error = |span| Error::new(span, message);
        let word: Ident = parse2(arguments).map_err(|wrong| error(wrong.span()))?;
        if word != "blocking" {
            return Err(error(word.span()));
        }
        true
    };
    let types = signature::arguments(&item)?;
    let mut checks = signature::checks(&types);
    checks.extend(signature::check_response(&item));
    let function = if is_blocking {
        checks.extend(sent(&item, &types));
        on_another_thread(item)?
    } else {
        quote!(#item)
    };
    Ok(quote! {
        #function

        const _: () = {
            #[allow(dead_code)]
            fn check() {
                #checks
            }
        };
    })
}

/// Code that does not compile, with an error at the type, if a value cannot go to another thread.
fn sent(item: &ItemFn, types: &[&Type]) -> TokenStream {
    let all = types.iter().copied().chain(signature::returned(item));
    let checks =
        all.map(|one| quote_spanned!(one.span()=> ::apus::attributes::check::sent::<#one>();));
    checks.collect()
}

/// An `async` function of the same name and type, which runs the function on another thread.
fn on_another_thread(mut item: ItemFn) -> syn::Result<TokenStream> {
    if let Some(keyword) = &item.sig.asyncness {
        let message = "an `async` function cannot block as a whole: call `apus::blocking(|| ..).await` in it, or \
                       remove `async`";
        return Err(Error::new(keyword.span(), message));
    }
    let attributes = std::mem::take(&mut item.attrs);
    let visibility = std::mem::replace(&mut item.vis, syn::Visibility::Inherited);
    let mut outer = item.sig.clone();
    outer.asyncness = Some(Default::default());
    let mut names = Vec::new();
    for (index, argument) in outer.inputs.iter_mut().enumerate() {
        if let FnArg::Typed(typed) = argument {
            let name = format_ident!("argument_{index}");
            typed.attrs.clear();
            *typed.pat = Pat::Verbatim(quote!(#name));
            names.push(name);
        }
    }
    let ident = &item.sig.ident;
    Ok(quote! {
        #(#attributes)*
        #visibility #outer {
            #item
            ::apus::blocking(move || #ident(#(#names),*)).await
        }
    })
}
