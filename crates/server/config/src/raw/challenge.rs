//! The keys of the challenge of a site.

use serde_json::json;

use super::YEAR;
use crate::description::TypeDescription;
use crate::keys::{ConfigReader, KeyType, ValueNode, choices, keys};
use crate::string_type::NetworkText;
use crate::string_type::limit::RateText;
use crate::value::{FilePath, Int, List, OneOrMore, Seconds, out_of_range};
use crate::when::When;

keys! {
    /// A challenge: a page that browsers pass by themselves, and most programs do not. Requests have a weight, which decides on its
    /// level: 1 needs cookies, 2 JavaScript, and 3 the computing of digests. Rules ask for it by `challenge = true`, and applications
    /// by `X-Apus-Challenge: required` in a response. `/robots.txt`, `/favicon.ico` and `/.well-known/` are exempt.
    pub(crate) struct ClientChallenge {
        /// Weights and thresholds for a situation; other keys add to them.
        preset: ChallengePreset,
        /// The level of rules and applications.
        level: Int<1, 3> = Int(1),
        /// What requests weigh. The weights of all conditions that hold are added.
        weights: List<ChallengeWeight> = List::default(),
        /// The weights from which on a request needs the levels 1, 2 and 3.
        levels: OneOrMore<Weight> = OneOrMore(vec![
            super::not_given(Weight(10)),
            super::not_given(Weight(20)),
            super::not_given(Weight(30)),
        ]),
        /// More requests to the site than these, as `"200/s"`, add 10 to the weight of all, until a minute has passed with fewer.
        rate: RateText,
        /// From this percentage of error responses (from 400 on) in a second on, all requests weigh 10 more for a minute. Fewer than 20
        /// responses in a second do not count. The preset has 20.
        errors: Int<1, 100>,
        /// From this load of the machine in the last minute on, in percent of its cores, all requests weigh 10 more for a minute.
        load: Int<1, 10_000>,
        /// Networks (`"10.0.0.0/8"`, `"::1"`, or `"unix:"`) whose clients are not challenged.
        allow: OneOrMore<NetworkText> = OneOrMore::default(),
        /// Whether bots of `[[global.bots]]` that have proven who they are pass without a challenge.
        bots: bool = true,
        /// Requests that are not challenged, as `'path starts_with "/api/"'`.
        except: When,
        /// How long a client that has passed is not challenged again, in seconds.
        lifetime: Seconds<60, YEAR> = Seconds::new(86_400),
        /// A file with a random secret of at least 32 bytes, which signs what clients have passed. Servers that share it accept the
        /// clients of one another. By default the secret is made at each start, and clients are challenged again then.
        key_file: FilePath,
        /// The work of level 3: the digest that browsers look for begins with so many zero bits. Each bit doubles the work.
        difficulty: Int<1, 30> = Int(13),
        /// The most zero bits. Each doubling of `rate` or `load` beyond its threshold adds one.
        max_difficulty: Int<1, 30> = Int(18),
    }
}

choices! {
    /// A situation of a site.
    pub(crate) ChallengePreset: "a situation of a site" {
        /// Everybody needs level 2, and level 3 while a fifth of the responses are errors.
        UnderAttack = "under_attack",
    }
}

keys! {
    /// What some requests weigh.
    pub(crate) struct ChallengeWeight {
        /// Which requests: a condition, as `'user_agent ~ "(?i)python|curl"'`. Without one, all.
        when: When,
        /// What they weigh more, or less if it is negative.
        add [required]: Weight,
    }
}

/// A weight, which may be negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Weight(pub(crate) i64);

/// The largest weight.
const MAX: i64 = 1000;

impl KeyType for Weight {
    fn read(node: &ValueNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        let Some(integer) = node.value.as_integer() else {
            reader.wrong_type(node, EXPECTED);
            return None;
        };
        let number = i64::from_str_radix(integer.as_str(), integer.radix()).ok();
        let number = number.filter(|number| (-MAX..=MAX).contains(number));
        if number.is_none() {
            out_of_range(node, EXPECTED, reader);
        }
        number.map(Self)
    }

    fn type_description() -> TypeDescription {
        let schema = json!({"type": "integer", "minimum": -MAX, "maximum": MAX});
        TypeDescription::new(EXPECTED, schema)
    }

    fn shown(&self) -> serde_json::Value {
        self.0.into()
    }
}

const EXPECTED: &str = "a whole number from -1000 to 1000";
