//! The macro `embedded!("folder")`, which compiles files into the program.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Error, LitStr, parse2};

pub(crate) fn expand(folder: TokenStream) -> TokenStream {
    let literal = match parse2::<LitStr>(folder) {
        Ok(literal) => literal,
        Err(error) => {
            let message =
                "name a folder, relative to the folder of Cargo.toml: embedded!(\"templates\")";
            return Error::new(error.span(), message).into_compile_error();
        }
    };
    let root = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let folder = root.unwrap_or_default().join(literal.value());
    let mut files = Vec::new();
    if let Err(error) = list(&folder, "", &mut files) {
        let message = format!("{} cannot be read: {error}", folder.display());
        return Error::new(literal.span(), message).into_compile_error();
    }
    files.sort();
    let files = files
        .iter()
        .map(|(name, path)| quote!((#name, ::core::include_bytes!(#path) as &'static [u8])));
    quote!([#(#files),*] as [(&'static str, &'static [u8]); _])
}

fn list(folder: &Path, prefix: &str, files: &mut Vec<(String, String)>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        if name.starts_with('.') {
            continue;
        }
        let path = entry.path();
        let name = format!("{prefix}{name}");
        if path.is_dir() {
            list(&path, &format!("{name}/"), files)?;
        } else if let Some(path) = path.to_str() {
            files.push((name, path.to_owned()));
        }
    }
    Ok(())
}
