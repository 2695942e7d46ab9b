//! Plots as SVG, each with a text that says what it shows.

use std::fmt::{self, Write as _};

use super::EscapedText;
use crate::report::text::time;

/// The size of a plot, and the space around it for labels.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 96.0;
const BOTTOM: f64 = 48.0;
const TOP: f64 = 14.0;
const RIGHT: f64 = 20.0;

/// The pixels of a mark below the horizontal axis, and of its name: letters are larger on a small screen.
const X_MARK: f64 = 20.0;
const X_NAME: f64 = 6.0;

/// A plot of lines.
#[derive(Clone, Copy, Debug)]
pub struct Chart<'a> {
    /// What it shows, in words.
    pub alternative: &'a str,
    /// What the horizontal axis shows.
    pub x_label: &'a str,
    /// What the vertical axis shows.
    pub y_label: &'a str,
    /// Whether the vertical axis is logarithmic: what differs by orders of magnitude is seen then.
    pub is_logarithmic: bool,
    /// The marks of the horizontal axis, unless they are even numbers.
    pub x_marks: Option<&'a [(f64, &'a str)]>,
    /// The lines.
    pub series: &'a [ChartLine<'a>],
}

/// A line of a plot.
#[derive(Clone, Copy, Debug)]
pub struct ChartLine<'a> {
    /// Their places on both axes.
    pub points: &'a [(f64, f64)],
    /// The class of its style.
    pub class: &'a str,
}

impl Chart<'_> {
    /// Writes the plot as SVG.
    ///
    /// # Errors
    /// Those of writing.
    pub fn write(&self, out: &mut String) -> fmt::Result {
        let points = || self.series.iter().flat_map(|series| series.points);
        let x_most = points()
            .fold(0.0, |most: f64, point| most.max(point.0))
            .max(1e-9);
        let x = |value: f64| LEFT + value / x_most * (WIDTH - LEFT - RIGHT);
        let axis = if self.is_logarithmic {
            ValueAxis::logarithmic(points().map(|point| point.1))
        } else {
            ValueAxis::linear(points().map(|point| point.1))
        };
        let y = |value: f64| HEIGHT - BOTTOM - axis.share(value) * (HEIGHT - BOTTOM - TOP);
        open(out, self.alternative, self.y_label)?;
        for mark in &axis.marks {
            let at = y(*mark);
            writeln!(
                out,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
                 <text class=\"y\" x=\"{}\" y=\"{:.1}\">{}</text>",
                WIDTH - RIGHT,
                LEFT - 8.0,
                at + 4.0,
                short(*mark)
            )?;
        }
        match self.x_marks {
            Some(marks) => {
                for (value, label) in marks.iter().filter(|(value, _)| *value <= x_most * 1.001) {
                    x_mark(out, x(*value), label)?;
                }
            }
            None => {
                let (_, step) = scale(x_most);
                let mut value = 0.0;
                while value <= x_most * 1.001 {
                    x_mark(out, x(value), &short(value))?;
                    value += step;
                }
            }
        }
        for series in self.series {
            write!(out, "<polyline class=\"{}\" points=\"", series.class)?;
            for (at, value) in series.points {
                write!(out, "{:.1},{:.1} ", x(*at), y(*value))?;
            }
            out.push_str("\"/>\n");
        }
        x_name(out, self.x_label)?;
        out.push_str("</svg></figure>\n");
        Ok(())
    }
}

/// How many responses had which latency at which time.
pub(super) struct HeatMap<'a> {
    /// What it shows, in words.
    pub(super) alternative: &'a str,
    /// The seconds of a column.
    pub(super) length: f64,
    /// Where each band begins.
    pub(super) starts_ms: &'a [f64],
    pub(super) columns: &'a [&'a [u64]],
}

impl HeatMap<'_> {
    pub(super) fn write(&self, out: &mut String) -> fmt::Result {
        let cells = self.columns.iter().flat_map(|column| column.iter());
        let most = cells.copied().max().unwrap_or(0).max(1) as f64;
        let width = (WIDTH - LEFT - RIGHT) / (self.columns.len().max(1) as f64);
        let height = (HEIGHT - BOTTOM - TOP) / (self.starts_ms.len().max(1) as f64);
        let y = |band: usize| HEIGHT - BOTTOM - height * (band + 1) as f64;
        open(out, self.alternative, "latency")?;
        for (index, column) in self.columns.iter().enumerate() {
            let x = LEFT + width * index as f64;
            for (band, count) in column.iter().enumerate().filter(|(_, count)| **count > 0) {
                // Few responses are visible beside many: the scale is logarithmic.
                let share = (*count as f64).ln_1p() / most.ln_1p();
                writeln!(
                    out,
                    "<rect class=\"heat\" x=\"{x:.2}\" y=\"{:.2}\" width=\"{width:.2}\" height=\"{height:.2}\" \
                     opacity=\"{:.2}\"><title>{count} responses</title></rect>",
                    y(band),
                    0.1 + 0.9 * share
                )?;
            }
        }
        let every = self.starts_ms.len().div_ceil(8).max(1);
        for (band, start) in self.starts_ms.iter().enumerate().step_by(every) {
            writeln!(
                out,
                "<text class=\"y\" x=\"{}\" y=\"{:.1}\">{}</text>",
                LEFT - 6.0,
                y(band) + height,
                time(*start)
            )?;
        }
        let seconds = self.length * self.columns.len() as f64;
        let (_, step) = scale(seconds);
        let mut value = 0.0;
        while value <= seconds * 1.001 {
            let at = LEFT + value / seconds.max(1e-9) * (WIDTH - LEFT - RIGHT);
            x_mark(out, at, &short(value))?;
            value += step;
        }
        x_name(out, "seconds")?;
        out.push_str("</svg></figure>\n");
        Ok(())
    }
}

/// Begins a plot. What the vertical axis shows stands above it, where it takes no width of a small screen.
fn open(out: &mut String, alternative: &str, y_label: &str) -> fmt::Result {
    writeln!(
        out,
        "<figure><figcaption>{}</figcaption><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{1}\"><title>{1}</title>",
        EscapedText(y_label),
        EscapedText(alternative)
    )
}

fn x_mark(out: &mut String, at: f64, label: &str) -> fmt::Result {
    writeln!(
        out,
        "<text class=\"x\" x=\"{at:.1}\" y=\"{}\">{label}</text>",
        HEIGHT - BOTTOM + X_MARK
    )
}

fn x_name(out: &mut String, name: &str) -> fmt::Result {
    writeln!(
        out,
        "<text class=\"x\" x=\"{}\" y=\"{}\">{name}</text>",
        (LEFT + WIDTH - RIGHT) / 2.0,
        HEIGHT - X_NAME,
    )
}

/// The vertical axis of a plot.
struct ValueAxis {
    marks: Vec<f64>,
    least: f64,
    most: f64,
    is_logarithmic: bool,
}

impl ValueAxis {
    /// From 0 to a round number.
    fn linear(values: impl Iterator<Item = f64>) -> Self {
        let highest = values.fold(0.0, |most: f64, value| most.max(value));
        let (most, step) = scale(highest);
        let mut marks = Vec::new();
        let mut mark = 0.0;
        while mark <= most * 1.001 {
            marks.push(mark);
            mark += step;
        }
        Self {
            marks,
            least: 0.0,
            most,
            is_logarithmic: false,
        }
    }

    /// From a power of ten, or 2 or 5 times one, to another.
    fn logarithmic(values: impl Iterator<Item = f64>) -> Self {
        let positive = values.filter(|value| *value > 0.0);
        let (low, high) = positive.fold((f64::INFINITY, 0.0_f64), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        if high == 0.0 {
            return Self::linear(std::iter::empty());
        }
        let mut marks = Vec::new();
        let mut power = 10f64.powf(low.log10().floor());
        while marks.last().is_none_or(|last| *last < high) {
            marks.extend([power, 2.0 * power, 5.0 * power]);
            power *= 10.0;
        }
        // The last one below the values, those between, and the first one above.
        let first = marks.iter().rposition(|mark| *mark <= low).unwrap_or(0);
        let last = marks.iter().position(|mark| *mark >= high);
        let mut marks = marks
            .get(first..=last.unwrap_or(marks.len() - 1))
            .unwrap_or_default()
            .to_vec();
        if let [only] = marks.as_slice() {
            marks.push(only * 2.0);
        }
        let (least, most) = (marks.first().copied(), marks.last().copied());
        if marks.len() > 8 {
            let is_power = |mark: &f64| (mark.log10() - mark.log10().round()).abs() < 1e-9;
            marks.retain(is_power);
        }
        Self {
            marks,
            least: least.unwrap_or(1.0),
            most: most.unwrap_or(10.0),
            is_logarithmic: true,
        }
    }

    /// How far up a value is, from 0 to 1.
    fn share(&self, value: f64) -> f64 {
        if self.is_logarithmic {
            let value = value.max(self.least);
            (value / self.least).ln() / (self.most / self.least).ln()
        } else {
            value / self.most
        }
    }
}

/// The end of an axis for values up to this one, and the step of its marks: 1, 2 or 5 times a power of ten.
fn scale(most: f64) -> (f64, f64) {
    if most <= 0.0 {
        return (1.0, 1.0);
    }
    let raw = most / 5.0;
    let power = 10f64.powf(raw.log10().floor());
    let step = match raw / power {
        _ if raw <= power => power,
        part if part <= 2.0 => 2.0 * power,
        part if part <= 5.0 => 5.0 * power,
        _ => 10.0 * power,
    };
    ((most / step).ceil() * step, step)
}

/// A number on an axis.
fn short(number: f64) -> String {
    match number {
        _ if number >= 1e6 => format!("{}M", trimmed(number / 1e6)),
        _ if number >= 1e3 => format!("{}k", trimmed(number / 1e3)),
        _ => trimmed(number),
    }
}

fn trimmed(number: f64) -> String {
    let text = format!("{number:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithmic_axes_enclose_the_values_in_round_marks() {
        let axis = |values: &[f64]| ValueAxis::logarithmic(values.iter().copied());
        assert_eq!(
            axis(&[0.55, 0.0, 11.0]).marks,
            [0.5, 1.0, 2.0, 5.0, 10.0, 20.0]
        );
        assert_eq!(axis(&[1.0]).marks, [1.0, 2.0]);
        let wide = axis(&[0.03, 4000.0]);
        assert_eq!((wide.least, wide.most), (0.02, 5000.0));
        assert_eq!(wide.marks.len(), 5);
        let middle = axis(&[1.0, 100.0]).share(10.0);
        assert!((middle - 0.5).abs() < 1e-9, "{middle}");
        assert_eq!(axis(&[0.0]).share(0.0), 0.0);
    }

    #[test]
    fn axes_have_round_steps() {
        assert_eq!(scale(0.0), (1.0, 1.0));
        assert_eq!(scale(10.0), (10.0, 2.0));
        assert_eq!(scale(9.1), (10.0, 2.0));
        assert_eq!(scale(73_000.0), (80_000.0, 20_000.0));
        let (end, step) = scale(0.34);
        assert!(
            (end - 0.4).abs() < 1e-9 && (step - 0.1).abs() < 1e-9,
            "{end} {step}"
        );
        assert_eq!(
            [0.0, 0.25, 1500.0, 2_000_000.0].map(short),
            ["0", "0.25", "1.5k", "2M"]
        );
    }
}
