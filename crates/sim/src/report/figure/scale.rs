//! Axes: what they span, and where their ticks are.

/// How an axis grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::report) enum Scale {
    /// From 0, unless there are values below.
    Linear,
    /// Powers of two.
    Twos,
    /// Powers of ten.
    Tens,
}

/// A scale over a range of values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Span {
    scale: Scale,
    least: f64,
    most: f64,
    step: f64,
}

/// About this many ticks on a linear axis.
const STEPS: f64 = 6.0;

impl Span {
    /// The span of an axis with round ends that has all `values`; the positive ones if it is
    /// logarithmic.
    pub(super) fn round(scale: Scale, values: impl Iterator<Item = f64>) -> Self {
        let (least, most) = ends(scale, values);
        match scale {
            Scale::Linear => {
                let (least, most) = (least.min(0.0), most.max(0.0));
                let step = round_step((most - least).max(1e-9) / STEPS);
                let least = (least / step).floor() * step;
                Self { scale, least, most: (most / step).ceil() * step, step }
            }
            Scale::Twos | Scale::Tens => {
                let power =
                    |value: f64| if scale == Scale::Twos { value.log2() } else { value.log10() };
                let (least, most) = (power(least).floor(), power(most).ceil());
                // Of a wide axis, not every power has a name.
                let step = ((most - least) / 10.0).ceil().max(1.0);
                Self { scale, least, most: most.max(least + 1.0), step }
            }
        }
    }

    /// The span of an axis that ends a little past its first and last value.
    pub(super) fn tight(scale: Scale, values: impl Iterator<Item = f64>) -> Self {
        let (least, most) = ends(scale, values);
        let of = |value: f64| match scale {
            Scale::Linear => value,
            Scale::Twos => value.log2(),
            Scale::Tens => value.log10(),
        };
        let (least, most) = (of(least), of(most));
        let margin = 0.04 * (most - least).max(1e-9);
        Self { scale, least: least - margin, most: most + margin, step: 1.0 }
    }

    /// Where a value is, from 0 to 1; nowhere if a logarithmic axis does not have it.
    pub(super) fn at(self, value: f64) -> Option<f64> {
        let of = match self.scale {
            Scale::Linear => value,
            Scale::Twos | Scale::Tens if value <= 0.0 => return None,
            Scale::Twos => value.log2(),
            Scale::Tens => value.log10(),
        };
        let part = (of - self.least) / (self.most - self.least);
        part.is_finite().then_some(part)
    }

    /// The values that have a name, and those names.
    pub(super) fn ticks(self) -> Vec<(f64, String)> {
        let count = ((self.most - self.least) / self.step + 1e-6) as i32;
        let first = (self.least / self.step - 1e-6).ceil() as i32;
        let value = |n: i32| match self.scale {
            Scale::Linear => f64::from(n) * self.step,
            Scale::Twos => (f64::from(n) * self.step).exp2(),
            Scale::Tens => 10f64.powf(f64::from(n) * self.step),
        };
        let all = (first..=first + count).map(|n| (value(n), short(value(n))));
        all.filter(|(value, _)| {
            self.at(*value).is_some_and(|at| (-1e-9..=1.0 + 1e-9).contains(&at))
        })
        .collect()
    }

    /// Values between powers of ten.
    pub(super) fn minor_ticks(self) -> Vec<f64> {
        if self.scale != Scale::Tens {
            return Vec::new();
        }
        let powers = self.least.floor() as i32..=self.most.ceil() as i32;
        let all = powers.flat_map(|n| (2..10).map(move |times| f64::from(times) * 10f64.powi(n)));
        all.filter(|value| self.at(*value).is_some_and(|at| (0.0..=1.0).contains(&at))).collect()
    }
}

fn ends(scale: Scale, values: impl Iterator<Item = f64>) -> (f64, f64) {
    let shown =
        values.filter(|value| value.is_finite() && (scale == Scale::Linear || *value > 0.0));
    let (least, most) = shown
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), value| (a.min(value), b.max(value)));
    if least > most { (1.0, 2.0) } else { (least, most) }
}

/// The least of 1, 2 and 5 times a power of ten that is not less.
fn round_step(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .map(|times| times * power)
        .into_iter()
        .find(|of| *of >= step * 0.999)
        .unwrap_or(step)
}

/// A number as axes show it.
pub(super) fn short(value: f64) -> String {
    let (value, unit) = match value.abs() {
        size if size >= 999_999.5 => (value / 1e6, "M"),
        size if size >= 9_999.5 => (value / 1e3, "K"),
        _ => (value, ""),
    };
    let text = format!("{value:.6}");
    format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(scale: Scale, values: &[f64]) -> Vec<String> {
        let span = Span::round(scale, values.iter().copied());
        span.ticks().into_iter().map(|(_, name)| name).collect()
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(names(Scale::Linear, &[3.0, 987.0]), ["0", "200", "400", "600", "800", "1000"]);
        assert_eq!(names(Scale::Linear, &[-1.0, 3.9]), ["-1", "0", "1", "2", "3", "4"]);
        assert_eq!(names(Scale::Twos, &[0.6, 5.0]), ["0.5", "1", "2", "4", "8"]);
        assert_eq!(names(Scale::Tens, &[0.0, 0.2, 2e6])[..3], ["0.1", "1", "10"]);
        assert_eq!(names(Scale::Tens, &[972.0, 4e6]), ["100", "1000", "10K", "100K", "1M", "10M"]);
        assert_eq!(names(Scale::Linear, &[]), ["0", "0.5", "1", "1.5", "2"]);
    }

    #[test]
    fn values_lie_within_their_axis() {
        for scale in [Scale::Linear, Scale::Twos, Scale::Tens] {
            for values in [[0.3, 17.0], [1.0, 1.0], [0.001, 1e7]] {
                let span = Span::round(scale, values.into_iter());
                assert!(values.iter().all(|v| (0.0..=1.0).contains(&span.at(*v).unwrap())));
                assert!((2..=12).contains(&span.ticks().len()), "{scale:?} {values:?}");
            }
        }
        assert_eq!(Span::round(Scale::Tens, [1.0, 5.0].into_iter()).at(0.0), None);
    }
}
