//! Random commands of a few hosts, and after each the table of Base 2.0, 8.19.1, as it is printed there.

use std::collections::BTreeMap;

use super::*;
use crate::wire::ReservationType::*;

/// Whether each kind of host may read and write: the holder, another registrant, anybody else; first reads, then writes.
fn printed(kind: ReservationType) -> [(bool, bool); 3] {
    match kind {
        WriteExclusive => [(true, true), (true, false), (true, false)],
        ExclusiveAccess => [(true, true), (false, false), (false, false)],
        WriteExclusiveRegistrantsOnly | WriteExclusiveAllRegistrants => [(true, true), (true, true), (true, false)],
        ExclusiveAccessRegistrantsOnly | ExclusiveAccessAllRegistrants => [(true, true), (true, true), (false, false)],
    }
}

/// Registrants and holder, kept in the plainest way.
#[derive(Debug, Default)]
struct Model {
    keys: BTreeMap<u8, u64>,
    held: Option<(u8, ReservationType)>,
    generation: u32,
}

impl Model {
    fn has_key(&self, host: u8, key: u64) -> bool {
        self.keys.get(&host) == Some(&key)
    }

    fn forget(&mut self, host: u8) {
        self.keys.remove(&host);
        if let Some((holder, kind)) = self.held {
            let is_over = if kind.is_of_all_registrants() { self.keys.is_empty() } else { holder == host };
            self.held = self.held.filter(|_| !is_over);
        }
    }

    fn holds(&self, host: u8) -> bool {
        let Some((holder, kind)) = self.held else { return false };
        if kind.is_of_all_registrants() { self.keys.contains_key(&host) } else { holder == host }
    }

    fn preempt(&mut self, host: u8, key: u64, kind: ReservationType) -> bool {
        let (of_all, holder_key) = match self.held {
            Some((_, held)) if held.is_of_all_registrants() => (true, None),
            Some((holder, _)) => (false, self.keys.get(&holder).copied()),
            None => (false, None),
        };
        let takes = of_all && key == 0 || holder_key == Some(key);
        let hit: Vec<u8> =
            self.keys.iter().filter(|(_, known)| **known == key || of_all && key == 0).map(|(host, _)| *host).collect();
        if hit.is_empty() {
            return false;
        }
        for one in hit.into_iter().filter(|one| !takes || *one != host) {
            self.forget(one);
        }
        if takes {
            self.held = Some((host, kind));
        }
        true
    }
}

/// A small generator, the same each time.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }
}

fn step(random: &mut Random, reserved: &mut Reserved, model: &mut Model) {
    let host = random.below(4) as u8;
    let id = [host; 16];
    let (mine, key) = (random.below(4), random.below(4));
    let kind = ReservationType::ALL[random.below(6) as usize];
    let ignore = random.below(3) == 0;
    let (got, counts) = match random.below(7) {
        0 | 1 => {
            let done = reserved.register(id, RegisterAction::Register, ignore, (mine, key)).is_ok();
            let may = key != 0 && model.keys.get(&host).is_none_or(|known| *known == key);
            assert_eq!(done, may);
            if may {
                model.keys.insert(host, key);
            }
            (done, true)
        }
        2 => {
            let done = reserved.register(id, RegisterAction::Replace, ignore, (mine, key)).is_ok();
            let may = key != 0 && (ignore || model.has_key(host, mine));
            assert_eq!(done, may);
            if may {
                model.keys.insert(host, key);
            }
            (done, true)
        }
        3 => {
            let done = reserved.register(id, RegisterAction::Unregister, ignore, (mine, 0)).is_ok();
            let may = model.keys.get(&host).is_some_and(|known| ignore || *known == mine);
            assert_eq!(done, may);
            if may {
                model.forget(host);
            }
            (done, true)
        }
        4 => {
            let done = reserved.acquire(id, mine, kind).is_ok();
            let is_free = model.held.is_none_or(|(_, held)| model.holds(host) && held == kind);
            assert_eq!(done, model.has_key(host, mine) && is_free);
            if done && model.held.is_none() {
                model.held = Some((host, kind));
            }
            (done, false)
        }
        5 => {
            let done = reserved.preempt(id, (mine, key), kind).is_ok();
            assert_eq!(done, model.has_key(host, mine) && model.preempt(host, key, kind));
            (done, true)
        }
        _ => {
            let clears = random.below(4) == 0;
            let action = if clears { ReleaseAction::Clear } else { ReleaseAction::Release };
            let done = reserved.release(id, action, mine, Some(kind)).is_ok();
            let fits = clears || !model.holds(host) || model.held.is_some_and(|(_, held)| held == kind);
            assert_eq!(done, model.has_key(host, mine) && fits);
            match (done, clears) {
                (true, true) => (model.keys, model.held) = (BTreeMap::new(), None),
                (true, false) if model.holds(host) => model.held = None,
                _ => {}
            }
            (done, clears)
        }
    };
    model.generation += u32::from(got && counts);
}

fn agrees(reserved: &Reserved, model: &Model) {
    assert_eq!(reserved.generation, model.generation, "{model:?}");
    let mut registered: Vec<(u8, u64)> = reserved.registrants.iter().map(|one| (one.host[0], one.key)).collect();
    registered.sort_unstable();
    assert_eq!(registered, model.keys.iter().map(|(host, key)| (*host, *key)).collect::<Vec<_>>());
    assert_eq!(reserved.held.map(|held| held.kind), model.held.map(|(_, kind)| kind), "{model:?}");
    for host in 0..5 {
        let (reads, writes) = match model.held {
            None => (true, true),
            Some((_, kind)) => {
                let row = if model.holds(host) { 0 } else { 2 - usize::from(model.keys.contains_key(&host)) };
                printed(kind)[row]
            }
        };
        let exclusion = reserved.exclusion(&[host; 16]);
        let may = |what| exclusion.check(what).is_ok();
        assert_eq!((may(ReservedUse::Read), may(ReservedUse::Write)), (reads, writes), "host {host} of {model:?}");
        assert_eq!(reserved.holds(&[host; 16]), model.holds(host), "host {host} of {model:?}");
    }
}

#[test]
fn random_commands_leave_what_the_table_says() {
    let mut taken = 0;
    for seed in 1..=200 {
        let (mut random, mut reserved, mut model) =
            (Random(0x9e37_79b9_7f4a_7c15 ^ seed), Reserved::default(), Model::default());
        for _ in 0..200 {
            step(&mut random, &mut reserved, &mut model);
            agrees(&reserved, &model);
            taken += u32::from(model.held.is_some());
        }
    }
    assert!(taken > 10_000, "reservations were held after {taken} of 40,000 commands");
}
