//! `#[http_error]`: declares a type that implements `HttpError`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Error, ItemImpl};

/// The `impl` as it is written, and the declaration of its type.
pub(crate) fn expand(arguments: TokenStream, item: TokenStream) -> TokenStream {
    match declared(arguments, &item) {
        Ok(declaration) => quote!(#item #declaration),
        Err(error) => {
            let error = error.into_compile_error();
            quote!(#item #error)
        }
    }
}

fn declared(arguments: TokenStream, item: &TokenStream) -> Result<TokenStream, Error> {
    if !arguments.is_empty() {
        let message = "`#[http_error]` takes no arguments: `HttpError::status` returns the status";
        return Err(Error::new_spanned(arguments, message));
    }
    let wrong = "write `#[http_error]` above `impl HttpError for` a type";
    let implementation: ItemImpl =
        syn::parse2(item.clone()).map_err(|_| Error::new_spanned(item, wrong))?;
    let is_trait = implementation.trait_.as_ref().is_some_and(|(path, _)| {
        let last = path.segments.last();
        last.is_some_and(|last| last.ident == "HttpError")
    });
    if !is_trait {
        return Err(Error::new_spanned(&implementation.self_ty, wrong));
    }
    if !implementation.generics.params.is_empty() {
        let message =
            "a type with parameters cannot be declared: use `.map_err(HttpError::into_error)?`";
        return Err(Error::new_spanned(&implementation.generics, message));
    }
    let of = &implementation.self_ty;
    Ok(quote! {
        const _: () = {
            use ::apus::attributes::inventory;
            inventory::submit! { ::apus::attributes::DeclaredHttpError::of::<#of>() }
        };
    })
}
