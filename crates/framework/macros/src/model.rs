//! `#[derive(Model)]`: a struct that is a row of a table.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};
use syn::spanned::Spanned;
use syn::{
    Attribute, Data, DeriveInput, Error, Field, Fields, LitStr, Path, Type, parse_quote, parse2,
};

pub(crate) fn expand(input: TokenStream) -> TokenStream {
    let expanded = parse2(input).and_then(|input: DeriveInput| implementation(&input));
    expanded.unwrap_or_else(Error::into_compile_error)
}

/// A field of the struct.
struct ModelField<'a> {
    name: &'a Ident,
    kind: &'a Type,
    /// The name of the column; none if the field is skipped.
    column: Option<LitStr>,
    is_key: bool,
    is_assigned: bool,
}

fn implementation(input: &DeriveInput) -> Result<TokenStream, Error> {
    let wrong = "a model is a struct with named fields";
    let Data::Struct(data) = &input.data else {
        return Err(Error::new_spanned(&input.ident, wrong));
    };
    let Fields::Named(named) = &data.fields else {
        return Err(Error::new_spanned(&input.ident, wrong));
    };
    if !input.generics.params.is_empty() {
        let message = "a model has no parameters: a table has columns of one type each";
        return Err(Error::new_spanned(&input.generics, message));
    }
    let settings = ModelSettings::read(input)?;
    let mut fields = Vec::new();
    for field in &named.named {
        fields.push(ModelField::read(field)?);
    }
    let key = key_of(input, &mut fields)?;
    let Some(key) = fields.get(key) else {
        return Err(Error::new_spanned(&input.ident, wrong));
    };
    Ok(generate(input, &settings, &fields, key))
}

impl<'a> ModelField<'a> {
    fn read(field: &'a Field) -> Result<Self, Error> {
        let Some(name) = &field.ident else {
            return Err(Error::new(field.span(), "the field has no name"));
        };
        let mut read = Self {
            name,
            kind: &field.ty,
            column: None,
            is_key: false,
            is_assigned: false,
        };
        let mut is_skipped = false;
        for attribute in model_attributes(&field.attrs) {
            attribute.parse_nested_meta(|meta| {
                if meta.path.is_ident("key") {
                    read.is_key = true;
                } else if meta.path.is_ident("assigned") {
                    read.is_assigned = true;
                } else if meta.path.is_ident("skip") {
                    is_skipped = true;
                } else if meta.path.is_ident("column") {
                    read.column = Some(sql_name(meta.value()?.parse()?)?);
                } else {
                    let message =
                        "a field of a model takes `key`, `assigned`, `skip` and `column = \"..\"`";
                    return Err(meta.error(message));
                }
                Ok(())
            })?;
        }
        if is_skipped && (read.column.is_some() || read.is_key || read.is_assigned) {
            let message = "a field that is skipped is no column";
            return Err(Error::new_spanned(name, message));
        }
        if !is_skipped && read.column.is_none() {
            let text = name.to_string();
            let text = text.strip_prefix("r#").unwrap_or(&text);
            read.column = Some(sql_name(LitStr::new(text, name.span()))?);
        }
        Ok(read)
    }
}

/// The attributes `#[model(..)]`.
fn model_attributes(attributes: &[Attribute]) -> impl Iterator<Item = &Attribute> {
    let is_ours = |attribute: &&Attribute| attribute.path().is_ident("model");
    attributes.iter().filter(is_ours)
}

/// The attributes of the struct.
struct ModelSettings {
    /// The name of the table, from the attribute, or else the plural of the type.
    table: LitStr,
    /// The path of the crate that has `Model`.
    library: Path,
}

impl ModelSettings {
    fn read(input: &DeriveInput) -> Result<Self, Error> {
        let (mut table, mut library) = (None, None);
        for attribute in model_attributes(&input.attrs) {
            attribute.parse_nested_meta(|meta| {
                if meta.path.is_ident("table") {
                    table = Some(sql_name(meta.value()?.parse()?)?);
                } else if meta.path.is_ident("crate") {
                    library = Some(meta.value()?.parse::<LitStr>()?.parse()?);
                } else {
                    return Err(meta.error("a model takes `table = \"..\"` and `crate = \"..\"`"));
                }
                Ok(())
            })?;
        }
        Ok(Self {
            table: table.unwrap_or_else(|| {
                let name = plural(&snake_case(&input.ident.to_string()));
                LitStr::new(&name, input.ident.span())
            }),
            library: library.unwrap_or_else(|| parse_quote!(::apus::sql)),
        })
    }
}

/// A name that is written into statements as it is.
fn sql_name(name: LitStr) -> Result<LitStr, Error> {
    let text = name.value();
    let is_valid = !text.is_empty()
        && !text.starts_with(|first: char| first.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if is_valid {
        Ok(name)
    } else {
        Err(Error::new(
            name.span(),
            "the name of a table or a column has letters, digits and underscores",
        ))
    }
}

/// The index of the key: the field with the attribute, or else `id`.
fn key_of(input: &DeriveInput, fields: &mut [ModelField<'_>]) -> Result<usize, Error> {
    let mut keys = fields.iter().enumerate().filter(|(_, field)| field.is_key);
    let index = match (keys.next(), keys.next()) {
        (Some((index, _)), None) => index,
        (Some(_), Some((_, second))) => {
            let message = "a model has one key";
            return Err(Error::new_spanned(second.name, message));
        }
        (None, _) => {
            let is_id = |field: &ModelField<'_>| field.name == "id" && field.column.is_some();
            fields.iter().position(is_id).ok_or_else(|| {
                let message = "a model has a key: a field `id`, or one with `#[model(key)]`";
                Error::new_spanned(&input.ident, message)
            })?
        }
    };
    for (at, field) in fields.iter().enumerate() {
        if field.is_assigned && at != index {
            let message = "`assigned` is for the key: the program chooses its value";
            return Err(Error::new_spanned(field.name, message));
        }
    }
    if let Some(field) = fields.get_mut(index) {
        field.is_key = true;
        // The database makes integers.
        field.is_assigned |= !is_integer(field.kind);
    }
    Ok(index)
}

fn is_integer(kind: &Type) -> bool {
    let Type::Path(path) = kind else {
        return false;
    };
    ["i16", "i32", "i64"]
        .iter()
        .any(|name| path.path.is_ident(name))
}

fn generate(
    input: &DeriveInput,
    settings: &ModelSettings,
    fields: &[ModelField<'_>],
    key: &ModelField<'_>,
) -> TokenStream {
    let ModelSettings { table, library } = settings;
    let model = &input.ident;
    let visibility = &input.vis;
    let columns: Vec<_> = fields
        .iter()
        .filter_map(|field| Some((field, field.column.as_ref()?)))
        .collect();
    let constants = columns.iter().map(|(field, column)| {
        let (name, kind) = (field.name, field.kind);
        let text = name.to_string();
        let text = text.strip_prefix("r#").unwrap_or(&text).to_uppercase();
        let constant = format_ident!("{text}", span = name.span());
        let doc = format!("The column `{}`.", column.value());
        quote! {
            #[doc = #doc]
            #visibility const #constant: #library::Column<Self, #kind> = {
                fn get(row: &#model) -> &#kind {
                    &row.#name
                }
                #library::Column::new(#column, get)
            };
        }
    });
    let read = fields.iter().map(|field| {
        let (name, kind) = (field.name, field.kind);
        match &field.column {
            Some(column) => quote! {
                #name: <#kind as #library::ColumnValue>::read(row, #column)?
            },
            None => quote!(#name: <#kind as ::core::default::Default>::default()),
        }
    });
    let names = columns.iter().map(|(_, column)| column);
    let values = columns.iter().map(|(field, _)| {
        let (name, kind) = (field.name, field.kind);
        quote!(<#kind as #library::ColumnValue>::to_value(&self.#name))
    });
    let (key_name, key_type, key_column) = (key.name, key.kind, &key.column);
    let is_assigned = key.is_assigned;
    quote! {
        #[allow(dead_code)]
        impl #model {
            #(#constants)*
        }

        impl<'r> #library::sqlx::FromRow<'r, #library::sqlx::any::AnyRow> for #model {
            fn from_row(
                row: &'r #library::sqlx::any::AnyRow,
            ) -> ::core::result::Result<Self, #library::sqlx::Error> {
                ::core::result::Result::Ok(Self { #(#read),* })
            }
        }

        impl #library::Model for #model {
            type Key = #key_type;
            const TABLE: &'static str = #table;
            const COLUMNS: &'static [&'static str] = &[#(#names),*];
            const KEY: &'static str = #key_column;
            const IS_KEY_ASSIGNED: bool = #is_assigned;

            fn key(&self) -> &Self::Key {
                &self.#key_name
            }

            fn set_key(&mut self, key: Self::Key) {
                self.#key_name = key;
            }

            fn values(&self) -> ::std::vec::Vec<#library::SqlValue> {
                ::std::vec![#(#values),*]
            }
        }
    }
}

/// `OrderLine` as `order_line`.
fn snake_case(name: &str) -> String {
    let mut text = String::new();
    let mut was_lower = false;
    for c in name.chars() {
        if c.is_uppercase() && was_lower {
            text.push('_');
        }
        was_lower = !c.is_uppercase();
        text.extend(c.to_lowercase());
    }
    text
}

/// The English plural of a name.
fn plural(name: &str) -> String {
    let before_y = name.strip_suffix('y');
    if let Some(stem) = before_y.filter(|stem| !stem.ends_with(['a', 'e', 'i', 'o', 'u'])) {
        return format!("{stem}ies");
    }
    let hisses = ["s", "x", "z", "ch", "sh"]
        .iter()
        .any(|end| name.ends_with(end));
    if hisses {
        format!("{name}es")
    } else {
        format!("{name}s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_the_plural_of_the_type() {
        for (name, table) in [
            ("User", "users"),
            ("OrderLine", "order_lines"),
            ("Category", "categories"),
            ("Day", "days"),
            ("Address", "addresses"),
            ("HTTPLog", "httplogs"),
        ] {
            assert_eq!(plural(&snake_case(name)), table);
        }
    }
}
