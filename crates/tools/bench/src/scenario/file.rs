//! Scenarios in TOML.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use apus_http::{Headers, Method};
use http::HeaderName;
use http::uri::PathAndQuery;
use regex::bytes::Regex;
use serde::Deserialize;

use super::check::{ExpectedField, ResponseCapture, ResponseCheck};
use super::data::RowSource;
use super::error::{
    CaptureMistake, InvalidPointer, InvalidScenarioFile, ScenarioFileMistake, ScenarioMistake,
    StepMistake,
};
use super::template::{
    InvalidLoadTemplate, LoadTemplate, TemplateValue, ValueEscape, write_escaped,
};
use super::{Scenario, ScenarioPlan, ScenarioStep};
use crate::think_time::{InvalidThinkTime, ThinkTime};
use crate::{BenchError, BenchUrl, PlannedRequest, parse_statuses};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    url: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    data: BTreeMap<String, RawData>,
    scenario: Vec<RawScenario>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawData {
    file: PathBuf,
    #[serde(default)]
    order: RawOrder,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RawOrder {
    #[default]
    Sequential,
    Random,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawScenario {
    name: Option<String>,
    #[serde(default = "one")]
    weight: u32,
    think_time: Option<String>,
    step: Vec<RawStep>,
}

fn one() -> u32 {
    1
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawStep {
    name: Option<String>,
    method: Option<String>,
    path: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    body: Option<String>,
    body_file: Option<PathBuf>,
    form: Option<BTreeMap<String, String>>,
    json: Option<serde_json::Value>,
    #[serde(default)]
    expect: RawExpect,
    #[serde(default)]
    capture: BTreeMap<String, RawCapture>,
    think_time: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawExpect {
    status: Option<RawStatus>,
    #[serde(default)]
    headers: BTreeMap<String, RawField>,
    length: Option<u64>,
    body_contains: Option<RawTexts>,
    #[serde(default)]
    json: BTreeMap<String, serde_json::Value>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RawStatus {
    Number(u16),
    Range(String),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RawField {
    Value(String),
    /// `true`: the field exists.
    Exists(bool),
    Pattern(RawPattern),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPattern {
    matches: String,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RawTexts {
    One(String),
    Many(Vec<String>),
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCapture {
    header: Option<String>,
    json: Option<String>,
    regex: Option<String>,
}

/// What the steps of a file share.
struct FileContext<'a> {
    folder: &'a Path,
    url: BenchUrl,
    /// Fields of all requests, by their names in lower case.
    headers: BTreeMap<String, String>,
    sources: Vec<(String, RowSource)>,
}

impl ScenarioPlan {
    /// Reads scenarios from a file. `url` replaces the URL of the file, and `headers` are those of all requests, unless the file
    /// has others.
    ///
    /// # Errors
    /// The file or one that it names cannot be read, or contains a mistake.
    pub fn read(path: &Path, url: Option<BenchUrl>, headers: &Headers) -> Result<Self, BenchError> {
        let wrong = |mistake| {
            BenchError::plan(InvalidScenarioFile {
                path: path.to_owned(),
                mistake,
            })
        };
        let text = fs::read_to_string(path);
        let text = text.map_err(|error| wrong(ScenarioFileMistake::Unreadable(error)))?;
        let folder = path.parent().unwrap_or(Path::new("."));
        Self::parse(&text, folder, (url, headers)).map_err(wrong)
    }

    fn parse(
        text: &str,
        folder: &Path,
        (url, headers): (Option<BenchUrl>, &Headers),
    ) -> Result<Self, ScenarioFileMistake> {
        let raw: RawFile = toml::from_str(text)?;
        let url = match (url, raw.url) {
            (Some(url), _) => url,
            (None, Some(text)) => match text.parse() {
                Ok(url) => url,
                Err(error) => return Err(ScenarioFileMistake::Url { text, error }),
            },
            (None, None) => return Err(ScenarioFileMistake::NoUrl),
        };
        let mut sources = Vec::new();
        for (name, data) in raw.data {
            let is_random = matches!(data.order, RawOrder::Random);
            sources.push((name, RowSource::read(&folder.join(data.file), is_random)?));
        }
        let mut common: BTreeMap<String, String> = headers
            .iter()
            .map(|(name, value)| {
                // A value of the command line is no template.
                let value = String::from_utf8_lossy(value).replace("${", "$${");
                (name.to_ascii_lowercase(), value)
            })
            .collect();
        common.extend(lower(raw.headers));
        let context = FileContext {
            folder,
            url,
            headers: common,
            sources,
        };
        let mut plan = Self {
            scenarios: Vec::new(),
            sources: Vec::new(),
            reported: Vec::new(),
        };
        for (index, scenario) in raw.scenario.into_iter().enumerate() {
            let name = scenario
                .name
                .clone()
                .unwrap_or_else(|| format!("{}", index + 1));
            context
                .scenario(scenario, &name, &mut plan)
                .map_err(|mistake| ScenarioFileMistake::Scenario { name, mistake })?;
        }
        if plan.scenarios.iter().all(|scenario| scenario.weight == 0) {
            return Err(ScenarioFileMistake::NoWeight);
        }
        plan.sources = context.sources;
        Ok(plan)
    }
}

fn lower(fields: BTreeMap<String, String>) -> impl Iterator<Item = (String, String)> {
    fields
        .into_iter()
        .map(|(name, value)| (name.to_ascii_lowercase(), value))
}

impl FileContext<'_> {
    fn scenario(
        &self,
        raw: RawScenario,
        name: &str,
        plan: &mut ScenarioPlan,
    ) -> Result<(), ScenarioMistake> {
        if raw.step.is_empty() {
            return Err(ScenarioMistake::NoStep);
        }
        let think_time =
            think_time(raw.think_time.as_deref()).map_err(ScenarioMistake::ThinkTime)?;
        let mut variables = Vec::new();
        let first = plan.reported.len();
        let mut steps = Vec::new();
        for (index, step) in raw.step.into_iter().enumerate() {
            let title = step
                .name
                .clone()
                .unwrap_or_else(|| format!("{}", index + 1));
            let step = match self.step(step, &mut variables) {
                Ok(step) => step,
                Err(mistake) => return Err(ScenarioMistake::Step { title, mistake }),
            };
            let mut reported = PlannedRequest::get(self.url.clone());
            reported.method = step.method.clone();
            reported.weight = raw.weight;
            reported.url.set_path(step.path.source().to_owned());
            reported.name = Some(format!("{name}: {title}"));
            plan.reported.push(reported);
            steps.push(step);
        }
        plan.scenarios.push(Scenario {
            weight: raw.weight,
            think_time,
            steps,
            variables: variables.len(),
            first,
        });
        Ok(())
    }

    fn step(&self, raw: RawStep, variables: &mut Vec<String>) -> Result<ScenarioStep, StepMistake> {
        let template =
            |source: &str| LoadTemplate::parse(source, &|name| self.resolve(name, variables));
        let path = template(&raw.path)?;
        check_path(&path)?;
        let (body, body_escape, media_type) = self.body(&raw, &template)?;
        let mut fields = self.headers.clone();
        if let Some(media_type) = media_type {
            fields
                .entry("content-type".to_owned())
                .or_insert_with(|| media_type.to_owned());
        }
        fields.extend(lower(raw.headers));
        let mut headers = Vec::new();
        for (name, value) in fields {
            HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| StepMistake::FieldName(name.clone()))?;
            if value.chars().any(char::is_control) {
                return Err(StepMistake::FieldValue(name));
            }
            // An empty value takes a field away, as on the command line.
            if !value.is_empty() {
                headers.push((name, template(&value)?));
            }
        }
        let method = match &raw.method {
            Some(method) => Method::from_bytes(method.as_bytes())
                .map_err(|_| StepMistake::Method(method.clone()))?,
            None if body.is_some() => Method::POST,
            None => Method::GET,
        };
        let checks = checks(raw.expect)?;
        let mut captures = Vec::new();
        for (name, capture) in raw.capture {
            let capture = match capture.parse() {
                Ok(capture) => capture,
                Err(mistake) => return Err(StepMistake::Capture { name, mistake }),
            };
            let index = variables.iter().position(|known| *known == name);
            let index = index.unwrap_or_else(|| {
                variables.push(name);
                variables.len() - 1
            });
            captures.push((index, capture));
        }
        Ok(ScenarioStep {
            method,
            path,
            headers,
            body,
            body_escape,
            reads_body: checks.iter().any(ResponseCheck::reads_body)
                || captures.iter().any(|(_, capture)| capture.reads_body()),
            checks,
            captures,
            think_time: think_time(raw.think_time.as_deref())?,
        })
    }

    fn resolve(&self, name: &str, variables: &[String]) -> Option<TemplateValue> {
        if let Some(index) = variables.iter().position(|known| known == name) {
            return Some(TemplateValue::Variable(index));
        }
        let (source, column) = name.split_once('.')?;
        let index = self.sources.iter().position(|(known, _)| known == source)?;
        let (_, source) = self.sources.get(index)?;
        Some(TemplateValue::Column(index, source.column(column)?))
    }

    /// The body of a step, how values are written in it, and its media type if it follows.
    #[allow(clippy::type_complexity, reason = "the three belong to one body")]
    fn body(
        &self,
        raw: &RawStep,
        template: &dyn Fn(&str) -> Result<LoadTemplate, InvalidLoadTemplate>,
    ) -> Result<(Option<LoadTemplate>, ValueEscape, Option<&'static str>), StepMistake> {
        let given = [
            raw.body.is_some(),
            raw.body_file.is_some(),
            raw.form.is_some(),
            raw.json.is_some(),
        ];
        if given.iter().filter(|given| **given).count() > 1 {
            return Err(StepMistake::SeveralBodies);
        }
        if let Some(form) = &raw.form {
            let mut text = String::new();
            for (name, value) in form {
                if !text.is_empty() {
                    text.push('&');
                }
                write_escaped(name, ValueEscape::Percent, &mut text);
                text.push('=');
                text += &escaped_around_values(value);
            }
            let form = Some("application/x-www-form-urlencoded");
            return Ok((Some(template(&text)?), ValueEscape::Percent, form));
        }
        if let Some(json) = &raw.json {
            let text = json.to_string();
            return Ok((
                Some(template(&text)?),
                ValueEscape::Json,
                Some("application/json"),
            ));
        }
        let text = match (&raw.body, &raw.body_file) {
            (Some(body), _) => body.clone(),
            (None, Some(file)) => {
                let path = self.folder.join(file);
                match fs::read_to_string(&path) {
                    Ok(text) => text,
                    Err(error) => return Err(StepMistake::BodyFile { path, error }),
                }
            }
            (None, None) => return Ok((None, ValueEscape::None, None)),
        };
        Ok((Some(template(&text)?), ValueEscape::None, None))
    }
}

/// Encodes the text of a value of a form, but not the places of values in it.
fn escaped_around_values(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((name, after)) = after.split_once('}') else {
            break;
        };
        match before.strip_suffix('$') {
            Some(before) => {
                write_escaped(before, ValueEscape::Percent, &mut out);
                write_escaped(&format!("${{{name}}}"), ValueEscape::Percent, &mut out);
            }
            None => {
                write_escaped(before, ValueEscape::Percent, &mut out);
                out += &format!("${{{name}}}");
            }
        }
        rest = after;
    }
    write_escaped(rest, ValueEscape::Percent, &mut out);
    out
}

fn think_time(text: Option<&str>) -> Result<Option<ThinkTime>, InvalidThinkTime> {
    text.map(str::parse).transpose()
}

fn check_path(path: &LoadTemplate) -> Result<(), StepMistake> {
    let mut sample = String::new();
    path.render(&mut sample, ValueEscape::None, &mut |_, out| out.push('x'));
    if sample.starts_with('/') && sample.parse::<PathAndQuery>().is_ok() {
        Ok(())
    } else {
        Err(StepMistake::Path(path.source().to_owned()))
    }
}

fn checks(raw: RawExpect) -> Result<Vec<ResponseCheck>, StepMistake> {
    let mut checks = vec![ResponseCheck::Status(match raw.status {
        Some(RawStatus::Number(status)) => parse_statuses(&status.to_string())?,
        Some(RawStatus::Range(range)) => parse_statuses(&range)?,
        None => 200..=399,
    })];
    for (name, value) in raw.headers {
        let expected = match value {
            RawField::Value(value) => ExpectedField::Value(value),
            RawField::Exists(true) => ExpectedField::Any,
            // No field of a response is checked to be absent.
            RawField::Exists(false) => return Err(StepMistake::ExpectedAbsence(name)),
            RawField::Pattern(pattern) => match Regex::new(&pattern.matches) {
                Ok(pattern) => ExpectedField::Pattern(pattern),
                Err(error) => return Err(StepMistake::FieldPattern { name, error }),
            },
        };
        checks.push(ResponseCheck::Header(name, expected));
    }
    checks.extend(raw.length.map(ResponseCheck::Length));
    let texts = match raw.body_contains {
        Some(RawTexts::One(text)) => vec![text],
        Some(RawTexts::Many(texts)) => texts,
        None => Vec::new(),
    };
    checks.extend(texts.into_iter().map(ResponseCheck::Contains));
    for (pointer, value) in raw.json {
        check_pointer(&pointer)?;
        checks.push(ResponseCheck::Json(pointer, value));
    }
    Ok(checks)
}

fn check_pointer(pointer: &str) -> Result<(), InvalidPointer> {
    if pointer.is_empty() || pointer.starts_with('/') {
        Ok(())
    } else {
        Err(InvalidPointer(pointer.to_owned()))
    }
}

impl RawCapture {
    fn parse(self) -> Result<ResponseCapture, CaptureMistake> {
        match (self.header, self.json, self.regex) {
            (Some(name), None, None) => Ok(ResponseCapture::Header(name)),
            (None, Some(pointer), None) => {
                check_pointer(&pointer).map_err(CaptureMistake::Pointer)?;
                Ok(ResponseCapture::Json(pointer))
            }
            (None, None, Some(pattern)) => Regex::new(&pattern)
                .map(ResponseCapture::Pattern)
                .map_err(CaptureMistake::Pattern),
            _ => Err(CaptureMistake::Place),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ScenarioPlan, ScenarioFileMistake> {
        let folder = std::env::temp_dir();
        ScenarioPlan::parse(text, &folder, (None, &Headers::new()))
    }

    #[test]
    fn a_file_has_scenarios_with_steps() {
        let plan = parse(
            r#"
            url = "http://127.0.0.1:8080"
            [[scenario]]
            name = "buy"
            weight = 3
            think_time = "1s..2s"
            [[scenario.step]]
            name = "log in"
            path = "/login"
            form = { user = "a b${counter}", "p&" = "$${x}" }
            expect = { status = 303, headers = { location = "/", date = true } }
            capture = { token = { header = "x-token" } }
            [[scenario.step]]
            path = "/cart/${token}"
            json = { id = "${token}" }
            expect = { status = "200-201", json = { "/ok" = true }, body_contains = ["a", "b"] }
            "#,
        )
        .unwrap();
        let requests = plan.requests();
        assert_eq!(requests.len(), 2);
        assert_eq!(requests[0].name.as_deref(), Some("buy: log in"));
        assert_eq!(requests[0].method, Method::POST);
        assert_eq!(requests[1].url.path(), "/cart/${token}");
        assert_eq!(requests[1].weight, 3);
        let steps = &plan.scenarios[0].steps;
        let form = steps[0].body.as_ref().unwrap();
        assert_eq!(form.source(), "p%26=%24%7Bx%7D&user=a%20b${counter}");
        assert!(!steps[0].reads_body && steps[1].reads_body);
        assert_eq!(steps[1].checks.len(), 4);
    }

    #[test]
    fn mistakes_name_their_step() {
        let with = |step: &str| {
            parse(&format!(
                "url = \"http://127.0.0.1\"\n[[scenario]]\nname = \"a\"\n[[scenario.step]]\nname = \"b\"\n{step}"
            ))
        };
        for (step, expected) in [
            ("path = \"x\"", "is no path"),
            ("path = \"/a b\"", "is no path"),
            ("path = \"/${id}\"", "`${id}` is unknown"),
            (
                "path = \"/\"\nbody = \"\"\njson = {}",
                "exclude one another",
            ),
            ("path = \"/\"\nmethod = \"A B\"", "is no method"),
            ("path = \"/\"\nheaders = { \"a b\" = \"x\" }", "is no name"),
            (
                "path = \"/\"\nexpect = { status = 20 }",
                "expected a status",
            ),
            (
                "path = \"/\"\nexpect = { headers = { etag = { matches = \"(\" } } }",
                "`etag`: regex parse error",
            ),
            (
                "path = \"/\"\nexpect = { headers = { etag = false } }",
                "`etag`: expected a value, or true",
            ),
            (
                "path = \"/\"\nexpect = { json = { a = 1 } }",
                "no JSON pointer",
            ),
            ("path = \"/\"\ncapture = { a = {} }", "expected one of"),
            ("path = \"/\"\ncapture = { a = { regex = \"(\" } }", "`a`: "),
            ("path = \"/\"\nthink_time = \"soon\"", "expected a duration"),
            ("path = \"/\"\nbody_file = \"none\"", "the file "),
        ] {
            let error = with(step).unwrap_err().to_string();
            assert!(error.starts_with("scenario `a`, step `b`: "), "{error}");
            assert!(error.contains(expected), "{error}");
        }
        for wrong in [
            "",
            "url = \"http://127.0.0.1\"\nscenario = []",
            "[[scenario]]\nstep = []",
            "url = \"http://127.0.0.1\"\n[[scenario]]\nstep = []",
            "url = \"http://127.0.0.1\"\n[[scenario]]\nsteps = []",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
