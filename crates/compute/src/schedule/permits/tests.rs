use super::*;
use std::sync::mpsc;

/// A turn that is wanted for long.
fn turn(host: u64, class: Class) -> Turn {
    let until = Instant::now() + Duration::from_secs(3600);
    Turn { host, cpu_share: CPU_SHARE, class, cancel: CancelToken::new(), until }
}

/// A kernel that waited for its disk kept everybody else from computing.
#[test]
fn who_waits_for_a_disk_lets_another_one_compute() {
    let gate = Gate::new(1);
    let permit = gate.enter(&turn(1, Class::Normal)).unwrap();
    assert!(gate.step_aside());
    assert!(!gate.step_aside(), "there is nothing left to give away");
    std::thread::scope(|scope| {
        scope.spawn(|| drop(gate.enter(&turn(2, Class::Normal)).unwrap())).join().unwrap();
    });
    gate.step_back(&turn(1, Class::Normal));
    assert_eq!(gate.busy(), 1);
    drop(permit);
    assert!(gate.busy() == 0 && nobody_is_there(&gate));
}

fn nobody_is_there(gate: &Gate) -> bool {
    gate.lock().used.values().all(|share| share.present == 0)
}

/// Lets the given waiters queue up behind a held permit, and says in which order they got theirs.
fn order(gate: &Arc<Gate>, waiters: &[(u64, Class)]) -> Vec<usize> {
    let held = gate.enter(&turn(99, Class::Normal));
    let (sender, receiver) = mpsc::channel();
    let threads: Vec<_> = (0..)
        .zip(waiters)
        .map(|(index, &(host, class))| {
            let (inner, sender) = (Arc::clone(gate), sender.clone());
            let thread = std::thread::spawn(move || {
                let permit = inner.enter(&turn(host, class));
                sender.send(index).unwrap();
                drop(permit);
            });
            while gate.lock().waiting.len() <= index {
                std::thread::yield_now();
            }
            thread
        })
        .collect();
    drop(held);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    receiver.try_iter().collect()
}

#[test]
fn who_used_less_is_first_and_background_is_last() {
    let gate = Arc::new(Gate::new(1));
    let _keep = gate.lock().used.insert(7, Share { used: Duration::from_secs(1), present: 1 });
    gate.lock().used.insert(8, Share { used: Duration::ZERO, present: 1 });
    let waiters = [(8, Class::Background), (7, Class::Normal), (8, Class::Normal), (7, Class::Normal)];
    assert_eq!(order(&gate, &waiters), [2, 1, 3, 0]);
    assert_eq!(gate.busy(), 0);
}

/// A program without an end held its permit for an hour: all that others asked for waited as long.
#[test]
fn a_turn_ends_for_another_host_and_for_another_call_of_the_same() {
    for other in [1, 2] {
        let (gate, ended) = (Gate::new(1), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let permit = gate.enter(&turn(1, Class::Normal));
            scope.spawn(|| {
                drop(gate.enter(&turn(other, Class::Normal)));
                ended.store(true, Ordering::SeqCst);
            });
            while !ended.load(Ordering::SeqCst) {
                gate.pass_on(&turn(1, Class::Normal));
                assert!(gate.busy() <= 1);
            }
            drop(permit);
        });
        assert_eq!(gate.busy(), 0);
    }
}

/// A call that waited for its turn heard of its cancel when it got one.
#[test]
fn who_is_not_wanted_any_more_waits_for_no_turn() {
    let gate = Gate::new(1);
    let permit = gate.enter(&turn(1, Class::Normal));
    let unwanted = turn(2, Class::Normal);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| gate.enter(&unwanted).is_none());
        while gate.waiting() == 0 {
            std::thread::yield_now();
        }
        unwanted.cancel.cancel();
        assert!(waits.join().unwrap(), "the other one still has its turn");
    });
    let late = Turn { until: Instant::now(), ..turn(2, Class::Normal) };
    assert!(gate.enter(&late).is_none(), "its time is over");
    assert_eq!((gate.waiting(), gate.busy()), (0, 1));
    drop(permit);
    assert!(gate.busy() == 0 && nobody_is_there(&gate), "who gave up is not there any more");
    // In the middle of a chunk: it continues without a permit, and then sees that it must end.
    let permit = gate.enter(&turn(1, Class::Normal));
    std::thread::scope(|scope| {
        let (ended, is_ended) = mpsc::channel::<()>();
        let gate = &gate;
        scope.spawn(move || {
            let _permit = gate.enter(&turn(2, Class::Normal));
            assert!(is_ended.recv().is_err(), "until the end");
        });
        while !gate.pass_on(&unwanted) {
            std::thread::yield_now();
        }
        drop(permit);
        drop(ended);
    });
    assert!(gate.busy() == 0 && nobody_is_there(&gate));
}

#[test]
fn who_has_twice_the_share_is_next_until_it_used_twice_the_time() {
    let now = Instant::now();
    let held = |cpu_share| Held { host: 1, cpu_share, class: Class::Normal, helpers: 0, since: now, counted_to: now };
    let ran = Duration::from_millis(6);
    assert_eq!(held(CPU_SHARE).counted(ran), ran);
    assert_eq!([200, 50].map(|share| held(share).counted(ran)), [ran / 2, 2 * ran]);
    assert!(held(1).counted(Duration::MAX) > Duration::from_secs(1 << 30), "it is bounded");
    // What is counted decides who is next.
    let mut state = State::default();
    for (host, cpu_share) in [(1, 200), (2, 100)] {
        // Two threads: one stays.
        (0..2).for_each(|_| state.arrive(host));
        state.hold(host, cpu_share, Class::Normal);
        let held = state.held.get_mut(&std::thread::current().id()).unwrap();
        held.counted_to = Instant::now().checked_sub(ran).unwrap();
        state.depart();
    }
    let used = |host: u64| state.used[&host].used;
    assert!(used(1) < used(2) && used(1) >= ran / 2, "{:?}, {:?}", used(1), used(2));
}

/// A host that had called one function, and nothing for an hour, kept all others from computing for the next hour.
#[test]
fn time_in_which_a_host_wanted_nothing_is_not_saved_up() {
    let (mut state, hour) = (State::default(), Duration::from_secs(3600));
    state.used.insert(1, Share { used: hour, present: 1 });
    state.used.insert(2, Share { used: Duration::ZERO, present: 0 });
    state.arrive(2);
    assert_eq!(state.used[&2].used, hour - ADVANTAGE_MAX);
    state.arrive(3);
    assert_eq!(state.used[&3].used, hour - ADVANTAGE_MAX, "a new one is ahead of nobody");
    state.used.insert(4, Share { used: 2 * hour, present: 0 });
    state.arrive(4);
    assert_eq!(state.used[&4].used, 2 * hour, "and nobody is forgiven anything");
}

/// A call that takes a millisecond waited for two of another host's before each of its chunks.
#[test]
fn a_host_that_computes_little_does_not_wait_for_the_end_of_a_turn() {
    let now = Instant::now();
    let holder = Held {
        host: 1,
        cpu_share: CPU_SHARE,
        class: Class::Normal,
        helpers: 0,
        since: now,
        counted_to: now + TURN_MIN,
    };
    let over = Held { counted_to: now + TURN, ..holder };
    let next = |ahead: Duration, class, holder| {
        let gate = Gate::new(1);
        let mut state = gate.lock();
        for (host, used) in [(1, Duration::from_secs(1)), (2, Duration::from_secs(1) - ahead)] {
            state.used.insert(host, Share { used, present: 1 });
        }
        drop(gate.queue(&mut state, 2, CPU_SHARE, class));
        state.next(Some(holder)).is_some()
    };
    let (little, more) = (TURN / 2, 2 * TURN);
    assert!(next(more, Class::Normal, holder) && !next(little, Class::Normal, holder));
    assert!(next(little, Class::Normal, over) && !next(more, Class::Background, over));
}

#[test]
fn background_does_not_end_a_turn() {
    let gate = Gate::new(1);
    std::thread::scope(|scope| {
        let permit = gate.enter(&turn(1, Class::Normal));
        let other = scope.spawn(|| drop(gate.enter(&turn(2, Class::Background))));
        while gate.lock().waiting.is_empty() {
            std::thread::yield_now();
        }
        std::thread::sleep(TURN);
        gate.pass_on(&turn(1, Class::Normal));
        assert!(!other.is_finished() && gate.lock().waiting.len() == 1);
        drop(permit);
    });
}

/// How many threads of so many hosts computed at a time where there were two permits.
fn at_once(hosts: u64) -> usize {
    let (gate, inside, most) = (Gate::new(2), AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for host in 0..6 {
            let (gate, inside, most) = (&gate, &inside, &most);
            scope.spawn(move || {
                for _ in 0..200 {
                    let turn = turn(host % hosts, Class::Normal);
                    let permit = gate.enter(&turn);
                    most.fetch_max(1 + inside.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
                    inside.fetch_sub(1, Ordering::SeqCst);
                    gate.pass_on(&turn);
                    drop(permit);
                }
            });
        }
    });
    assert_eq!(gate.busy(), 0);
    assert!(gate.lock().waiting.is_empty());
    assert_eq!(gate.waiting.load(Ordering::Relaxed), 0);
    most.into_inner()
}

#[test]
fn no_more_than_the_permits_compute_at_once_but_for_one_of_a_host_that_is_ahead() {
    assert!(at_once(1) <= 2 && at_once(3) <= 3);
}

/// A call that takes a millisecond waited for another host's thread before each of its chunks.
#[test]
fn a_host_that_computes_little_does_not_wait_at_all() {
    let (gate, hour) = (Gate::new(1), Duration::from_secs(3600));
    gate.lock().used.extend([(1, Share { used: hour, present: 0 }), (2, Share { used: hour - 2 * TURN, present: 0 })]);
    let heavy = gate.enter(&turn(1, Class::Normal)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let light = turn(2, Class::Normal);
            let permit = gate.enter(&light).unwrap();
            assert_eq!(gate.busy(), 2);
            // It has had its turn, and is an ordinary host then.
            gate.lock().held.values_mut().filter(|held| held.host == 2).for_each(|held| {
                held.since = held.since.checked_sub(TURN).unwrap();
            });
            while !gate.pass_on(&light) {
                std::thread::yield_now();
            }
            assert_eq!((gate.busy(), gate.is_overdrawn.load(Ordering::Relaxed)), (1, false));
            drop(permit);
        });
        await_waiting(&gate);
        let late = Turn { until: Instant::now(), ..turn(2, Class::Background) };
        assert!(gate.enter(&late).is_none(), "nothing in the background is ahead");
        drop(heavy);
    });
    assert!(gate.busy() == 0 && nobody_is_there(&gate));
}

fn await_waiting(gate: &Gate) {
    let began = Instant::now();
    while gate.waiting() == 0 {
        assert!(began.elapsed() < Duration::from_secs(20), "nobody waits");
        std::thread::yield_now();
    }
}

/// A scan computed on one processor while the others had nothing to do.
#[test]
fn permits_that_nobody_wants_are_lent_and_nobody_waits_for_them() {
    let gate = Gate::new(4);
    let keep = Share { used: Duration::ZERO, present: 1 };
    gate.lock().used.insert(1, keep);
    assert_eq!(gate.idle(), 0, "who has none is lent none");
    let first = gate.enter(&turn(1, Class::Normal)).unwrap();
    assert_eq!((gate.idle(), gate.busy(), gate.of_host(1)), (3, 4, (4, 0)));
    std::thread::scope(|scope| {
        let (end, ended) = mpsc::channel::<()>();
        let (begin, begun) = mpsc::channel();
        let gate = &gate;
        scope.spawn(move || {
            let permit = gate.enter(&turn(2, Class::Normal));
            begin.send((permit.is_some(), gate.idle())).unwrap();
            assert!(ended.recv().is_err(), "until the end");
        });
        assert_eq!(begun.recv().unwrap(), (true, 0), "all are lent to the first one until it asks again");
        assert_eq!(gate.idle(), 2, "one is taken");
        drop(end);
    });
    std::thread::sleep(Duration::from_millis(5));
    assert_eq!(gate.idle(), 3);
    let used = gate.used(1).unwrap();
    assert!(used >= Duration::from_millis(15), "three threads computed for five milliseconds, not {used:?}");
    drop(first);
    assert_eq!(gate.busy(), 0);
}
