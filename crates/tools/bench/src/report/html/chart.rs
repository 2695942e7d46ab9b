//! Plots as SVG, each with a text that says what it shows.

use std::fmt::{self, Write as _};

use super::EscapedText;
use crate::report::text::time;

/// The size of a plot, and the space around it for labels.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 76.0;
const BOTTOM: f64 = 36.0;
const TOP: f64 = 10.0;
const RIGHT: f64 = 16.0;

/// A plot of lines.
#[derive(Clone, Copy, Debug)]
pub struct Chart<'a> {
    /// What it shows, in words.
    pub alternative: &'a str,
    /// What the horizontal axis shows.
    pub x_label: &'a str,
    /// What the vertical axis shows.
    pub y_label: &'a str,
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
        let y_highest = points().fold(0.0, |most: f64, point| most.max(point.1));
        let (y_most, y_step) = scale(y_highest);
        let x = |value: f64| LEFT + value / x_most * (WIDTH - LEFT - RIGHT);
        let y = |value: f64| HEIGHT - BOTTOM - value / y_most * (HEIGHT - BOTTOM - TOP);
        open(out, self.alternative)?;
        let mut value = 0.0;
        while value <= y_most * 1.001 {
            let at = y(value);
            writeln!(
                out,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
                 <text class=\"y\" x=\"{}\" y=\"{:.1}\">{}</text>",
                WIDTH - RIGHT,
                LEFT - 6.0,
                at + 4.0,
                short(value)
            )?;
            value += y_step;
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
        labels(out, self.x_label, self.y_label)?;
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
        open(out, self.alternative)?;
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
        labels(out, "seconds", "latency")?;
        out.push_str("</svg></figure>\n");
        Ok(())
    }
}

fn open(out: &mut String, alternative: &str) -> fmt::Result {
    writeln!(
        out,
        "<figure><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{0}\"><title>{0}</title>",
        EscapedText(alternative)
    )
}

fn x_mark(out: &mut String, at: f64, label: &str) -> fmt::Result {
    writeln!(
        out,
        "<text class=\"x\" x=\"{at:.1}\" y=\"{}\">{label}</text>",
        HEIGHT - BOTTOM + 15.0
    )
}

fn labels(out: &mut String, x: &str, y: &str) -> fmt::Result {
    writeln!(
        out,
        "<text class=\"x\" x=\"{}\" y=\"{}\">{x}</text>\
         <text class=\"x\" transform=\"translate(12 {}) rotate(-90)\">{y}</text>",
        (LEFT + WIDTH - RIGHT) / 2.0,
        HEIGHT - 4.0,
        (TOP + HEIGHT - BOTTOM) / 2.0
    )
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
