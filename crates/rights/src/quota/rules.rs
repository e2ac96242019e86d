//! The rules that an operator writes, and the limits that they give each host.

use std::collections::{BTreeMap, BTreeSet};

use super::limits::{HostLimits, Limit};

/// Limits, and the hosts each of which has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaRule {
    /// Names of hosts and of their groups, NQNs, or `*` for every host.
    pub of: Vec<String>,
    /// The limits of each of them.
    pub limits: HostLimits,
}

/// The limits of all hosts.
#[derive(Clone, Debug, Default)]
pub struct Quotas {
    /// By NQN: how the host is called, and what it may take.
    by_nqn: BTreeMap<String, (String, HostLimits)>,
    others: HostLimits,
}

impl Quotas {
    /// The limits that these rules give, for hosts given as name, NQN and groups. A rule that names the host goes before one that
    /// names a group of it, and that before one of all hosts; of several alike the smallest number holds.
    ///
    /// # Errors
    /// A rule is of nobody, or of somebody who is not known.
    pub fn new<'a>(
        rules: &[QuotaRule],
        hosts: impl IntoIterator<Item = (&'a str, &'a str, &'a [String])>,
    ) -> Result<Self, String> {
        let mut hosts: BTreeMap<&str, (&str, &[String])> =
            hosts.into_iter().map(|(name, nqn, groups)| (nqn, (name, groups))).collect();
        let names: BTreeSet<&str> =
            hosts.values().flat_map(|(name, groups)| groups.iter().map(String::as_str).chain([*name])).collect();
        for rule in rules {
            if rule.of.is_empty() {
                return Err("`of` is empty: write names of hosts or groups, or \"*\" for every host".into());
            }
            if rule.limits.is_none() {
                return Err(format!("it limits nothing: write one of {}", Limit::ALL.map(Limit::name).join(", ")));
            }
            for of in &rule.of {
                if of.starts_with("nqn.") {
                    hosts.entry(of).or_insert((of, &[]));
                } else if of != "*" && !names.contains(of.as_str()) {
                    return Err(format!("`{of}` is neither a [[host]] nor a group of one"));
                }
            }
        }
        let least = |is_of: &dyn Fn(&str) -> bool| {
            let found = rules.iter().filter(|rule| rule.of.iter().any(|of| is_of(of)));
            found.fold(HostLimits::default(), |limits, rule| limits.least(rule.limits))
        };
        let others = least(&|of| of == "*");
        let limits = |(nqn, (name, groups)): (&str, (&str, &[String]))| {
            let by_group = least(&|of| groups.iter().any(|group| group == of));
            let limits = least(&|of| of == name || of == nqn).or(by_group).or(others);
            (nqn.to_owned(), (name.to_owned(), limits))
        };
        Ok(Self { by_nqn: hosts.into_iter().map(limits).collect(), others })
    }

    /// Whether it is said of any host how much it may hold in exports.
    pub fn limits_space(&self) -> bool {
        self.others.limits_space() || self.by_nqn.values().any(|(_, limits)| limits.limits_space())
    }

    /// How a host is called, and what it may take.
    pub(super) fn of<'a>(&'a self, nqn: &'a str) -> (&'a str, HostLimits) {
        self.by_nqn.get(nqn).map_or((nqn, self.others), |(name, limits)| (name, *limits))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::quota) fn rule(of: &[&str], limits: HostLimits) -> QuotaRule {
        QuotaRule { of: of.iter().map(|of| (*of).to_owned()).collect(), limits }
    }

    pub(in crate::quota) fn quotas(rules: &[QuotaRule]) -> Result<Quotas, String> {
        let readers = ["readers".to_owned()];
        Quotas::new(rules, [("ann", "nqn.a", &readers[..]), ("bob", "nqn.b", &[][..])])
    }

    #[test]
    fn who_is_named_has_that_and_others_what_is_said_of_their_group_or_of_all() {
        let limits = |iops, programs| HostLimits { iops, programs, ..HostLimits::default() };
        let some = quotas(&[
            rule(&["*"], limits(Some(10), Some(4))),
            rule(&["readers"], limits(Some(100), None)),
            rule(&["readers", "bob"], limits(Some(70), None)),
            rule(&["bob", "nqn.c"], limits(None, Some(9))),
        ])
        .unwrap();
        assert_eq!(some.of("nqn.a"), ("ann", limits(Some(70), Some(4))), "the smaller of its group's");
        assert_eq!(some.of("nqn.b"), ("bob", limits(Some(70), Some(9))));
        assert_eq!(some.of("nqn.c"), ("nqn.c", limits(Some(10), Some(9))));
        assert_eq!(some.of("nqn.d"), ("nqn.d", limits(Some(10), Some(4))));
        assert!(Quotas::default().of("nqn.a").1.is_none());
    }

    #[test]
    fn what_is_no_quota_is_refused_with_its_reason() {
        let iops = HostLimits { iops: Some(1), ..HostLimits::default() };
        for (rule, want) in [
            (rule(&[], iops), "`of` is empty"),
            (rule(&["carl"], iops), "`carl` is neither a [[host]] nor a group of one"),
            (rule(&["*"], HostLimits::default()), "it limits nothing: write one of iops, bytes_per_s, cpu_share"),
        ] {
            let error = quotas(&[rule]).unwrap_err();
            assert!(error.contains(want), "{error}");
        }
    }
}
