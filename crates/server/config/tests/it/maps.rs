//! Maps: their mistakes, with places, and the templates, conditions and limits that name them.

use std::fs;

use crate::documents::{findings, folder, parse_in};

const SITE: &str = "[[sites]]\nlisten = 80\nroot = \"public\"\n";

/// The findings about maps, and lines of a site.
#[track_caller]
fn check(maps: &str, site: &str, expected: &[&str]) {
    let found = findings(&format!("[global]\n{maps}\n{SITE}{site}\n"));
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.contains(expected), "{found}\nlacks {expected}");
    }
}

const PLAN: &str = "maps.plan = { from = \"header.x-api-key\", values = { ada = \"gold\", \"~^test-\" = \"test\" }, default = \"free\" }";

#[test]
fn conditions_templates_and_limits_name_maps() {
    let site = r#"
        access_log = { path = "log", format = "$map_plan $status" }
        headers.set = { x-plan = "$map_plan" }
        rewrite = [{ from = "^/(?<rest>.*)$", to = "/$map_plan/$rest" }]
        rules = [
            { when = "map.plan == \"gold\"", tag = "a" },
            { when = { map.plan = ["test", "free"] }, return = { status = 302, location = "/${map_plan}/" } },
        ]
        limits = [{ name = "a", rate = "1/s", key = ["map.plan", "client"] }]
    "#;
    // Between braces, a name would be one of the environment.
    check(PLAN, &site.replace("${map_plan}", "$$${map_plan}"), &[]);
}

#[test]
fn a_mistake_in_a_map_has_its_place() {
    for (maps, expected) in [
        (
            "maps.a-b = { from = \"host\", values = { x = \"y\" } }",
            "2:6 the name of a map is letters, digits and `_`",
        ),
        (
            "maps.a = { from = \"hots\", values = { x = \"y\" } }",
            "2:19 there is no fact `hots`",
        ),
        (
            "maps.a = { from = \"status\", values = { x = \"y\" } }",
            "2:19 a map takes its value from a text or the address",
        ),
        (
            "maps.a = { from = \"client\", values = { x = \"y\" } }",
            "2:40 `x`: ",
        ),
        (
            "maps.a = { from = \"path\", values = { x = \"y\" } }",
            "2:38 `x`: a path begins with `/`",
        ),
        (
            "maps.a = { from = \"path\", values = { \"~(\" = \"y\" } }",
            "2:38 `~(`: the regular expression is invalid: unclosed group",
        ),
        (
            "maps.a = { from = \"client\", values = { \"10.0.0.0/8\" = \"a\", \"10.1.0.0/8\" = \"b\" } }",
            "2:60 `10.1.0.0/8`: the key is there twice",
        ),
        (
            "maps.a = { from = \"map.a\", values = { x = \"y\" } }",
            "2:19 the map `a`: the map takes its value from itself",
        ),
        (
            "maps.a = { from = \"map.b\", values = { x = \"y\" } }",
            "2:19 the map `a`: there is no map `b`",
        ),
        (
            "maps.a = { from = \"host\", file = \"none.map\" }",
            "2:34 cannot read",
        ),
        (
            "maps.a = { values = { x = \"y\" } }",
            "the key `from` is missing",
        ),
        ("maps.a = { from = \"host\" }", "the map has no keys"),
    ] {
        check(maps, "", &[expected]);
    }
    // What uses a map with a mistake has no further one.
    check(
        "maps.a = { from = \"hots\", values = { x = \"y\" } }",
        "rules = [{ when = \"map.a == \\\"z\\\"\", deny = 403 }]\nheaders.set = { x = \"$map_a\" }",
        &["there is no fact `hots`"],
    );
    check(
        "maps.a = { from = \"map.b\", values = { x = \"y\" } }\nmaps.b = { from = \"map.a\", values = { x = \"y\" } }",
        "rules = [{ when = \"map.a == \\\"z\\\"\", deny = 403 }]",
        &[
            "the map `a`: the map takes its value from itself",
            "the map `b`",
        ],
    );
}

#[test]
fn a_map_that_does_not_exist_is_found_where_it_is_named() {
    for site in [
        "headers.set = { x = \"$map_plam\" }",
        "request_headers.add = { x = \"$map_plam\" }",
        "access_log = { path = \"log\", format = \"$map_plam\" }",
        "rewrite = [{ from = \"^/(?<rest>.*)$\", to = \"/$rest$map_plam\" }]",
        "rewrite = [{ from = \"^/a$\", to = \"/b\", when = \"-f /a/$map_plam\" }]",
        "try_files = [\"$uri\", \"/$map_plam\"]",
        "rules = [{ rewrite = \"/$map_plam\" }]",
        "rules = [{ return = { status = 302, location = \"/$map_plam\" } }]",
        "rules = [{ return = { status = 200, text = \"$map_plam\" } }]",
        "rules = [{ headers.set = { x = \"$map_plam\" } }]",
        "locations = [{ path = \"/a/\", handler = \"fastcgi\", php_fastcgi = \"/run/php.sock\", fastcgi = { params = { A = \"$map_plam\" } } }]",
    ] {
        let found = findings(&format!("[global]\n{PLAN}\n{SITE}{site}\n"));
        let found = found.join("\n");
        assert!(found.contains("there is no map `plam`"), "{site}: {found}");
        assert!(
            found.contains("did you mean `$map_plan`?"),
            "{site}: {found}"
        );
    }
    for (site, expected) in [
        (
            "rules = [{ when = \"map.plam == \\\"a\\\"\", deny = 403 }]",
            "did you mean `map.plan`?",
        ),
        (
            "rules = [{ when = \"map.plan == \\\"golld\\\"\", deny = 403 }]",
            "`map.plan` is never `golld`; its values are free, gold, test",
        ),
        (
            "limits = [{ name = \"a\", rate = \"1/s\", key = \"map.plam\" }]",
            "there is no fact `map.plam`",
        ),
    ] {
        check(PLAN, site, &[expected]);
    }
    check(
        "",
        "headers.set = { x = \"$map_a\" }",
        &["[global.maps] has the maps"],
    );
}

#[test]
fn variables_of_rules_are_named_where_some_rule_sets_them() {
    let site = |more: &str| {
        format!(
            "access_log = {{ path = \"log\", format = \"$var_shop\" }}\nheaders.set = {{ x = \"$var_shop\" }}\n\
             limits = [{{ name = \"a\", rate = \"1/s\", key = \"var.shop\" }}]\n\
             rules = [{{ jump = \"chain\" }}, {{ when = 'var.shop == \"a\"', tag = \"a\" }}{more}]\n\
             chains = {{ chain = [{{ set = {{ shop = \"$host-$map_plan\" }} }}] }}"
        )
    };
    check(PLAN, &site(""), &[]);
    for (more, expected) in [
        (
            ", { set = { a-b = \"x\" } }",
            "the name of a variable is letters, digits and `_`",
        ),
        (
            ", { set = { b = \"$nope\" } }",
            "there is no variable $nope",
        ),
        (
            ", { set = { b = \"$map_plam\" } }",
            "there is no map `plam`",
        ),
        (
            ", { set = { b = \"$var_shap\" } }",
            "no rule sets `shap`; `$var_shap` is its value; did you mean `$var_shop`?",
        ),
        (
            ", { when = 'var.shap == \"a\"', tag = \"b\" }",
            "did you mean `var.shop`?",
        ),
    ] {
        check(PLAN, &site(more), &[expected]);
    }
}

#[test]
fn a_map_from_the_user_is_known_after_the_authentication() {
    let maps = "maps.team = { from = \"user\", values = { ada = \"core\" } }\nmaps.colour = { from = \"map.team\", values = { core = \"red\" } }";
    let early = "after the authentication";
    check(
        maps,
        "rules = [{ when = \"map.team == \\\"core\\\"\", deny = 403 }]",
        &[early],
    );
    check(
        maps,
        "rules = [{ when = \"map.colour == \\\"red\\\"\", deny = 403 }]",
        &[early],
    );
    let later = "rules = [{ on = \"response\", when = \"map.colour == \\\"red\\\"\", deny = 403 }]";
    check(maps, later, &[]);
    check(
        maps,
        "limits = [{ name = \"a\", rate = \"1/s\", key = \"map.team\" }]",
        &[],
    );
}

#[test]
fn the_lines_of_a_file_are_checked() {
    let folder = folder();
    let text = format!(
        "[global]\nmaps.a = {{ from = \"client\", values = {{ \"::1\" = \"six\" }}, file = \"a.map\" }}\n{SITE}rules = [{{ when = \"map.a == \\\"later\\\"\", deny = 403 }}]\n"
    );
    let parse = |lines: &str| {
        fs::write(folder.path().join("a.map"), lines).unwrap();
        parse_in(folder.path(), &text)
    };
    let plan = parse("# networks\n10.0.0.0/8 inside;\n192.0.2.1\tone # host\n").unwrap();
    assert_eq!(plan.sites[0].maps.as_ref().unwrap().names().count(), 1);
    let mistakes = parse("10.0.0.0/8 a\nx y\n10.0.0.0/8 b\n::1 other\n1.2.3.4\n");
    let mistakes = mistakes.unwrap_err().to_string();
    for part in [
        "line 2: a network is",
        "line 3: the key is there twice",
        "line 4: the key is there twice",
        "line 5: expected a value behind the key",
    ] {
        assert!(mistakes.contains(part), "{part}: {mistakes}");
    }
    let many = "x\n".repeat(15);
    let mistakes = parse(&many).unwrap_err().to_string();
    assert!(mistakes.contains("line 10: "), "{mistakes}");
    assert!(!mistakes.contains("line 11: "), "{mistakes}");
    assert!(mistakes.contains("5 more lines are wrong"), "{mistakes}");
    // The bound of all files of a configuration.
    let large = "# 0123456789\n".repeat(16 * 1024 * 1024 / 13 + 1);
    assert!(
        parse(&large)
            .unwrap_err()
            .to_string()
            .contains("cannot read")
    );
}
