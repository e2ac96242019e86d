//! Progress of long work, on standard error.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The bar that is shown now.
static SHOWN: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Writes to standard error, above the bar if one is shown.
pub(crate) fn above_bar<T>(write: impl FnOnce() -> T) -> T {
    let shown = SHOWN.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match shown {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

/// Standard error, for what is said while a bar may be shown.
pub(crate) struct AboveBar;

impl Write for AboveBar {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        above_bar(|| std::io::stderr().lock().write(bytes))
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stderr().lock().flush()
    }
}

/// A bar on standard error for work that takes long; nothing where that is not a terminal.
pub(crate) struct Progress {
    done: Arc<AtomicU64>,
    bar: ProgressBar,
    ticker: Option<std::thread::JoinHandle<()>>,
    stop: Arc<AtomicU64>,
}

impl Progress {
    /// Work shorter than this shows no bar.
    const DELAY: Duration = Duration::from_secs(1);
    const PERIOD: Duration = Duration::from_millis(100);

    /// A bar for work of this length, whose output goes to standard output meanwhile, or not: to a terminal it would go
    /// through the bar.
    pub(crate) fn start(len: u64, prints: bool) -> Self {
        let (done, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let bar = ProgressBar::with_draw_target(Some(len), ProgressDrawTarget::hidden());
        let mut this = Self { done, bar, ticker: None, stop };
        if std::io::stderr().is_terminal() && !(prints && std::io::stdout().is_terminal()) {
            let (bar, done, stop) = (this.bar.clone(), Arc::clone(&this.done), Arc::clone(&this.stop));
            this.ticker = Some(std::thread::spawn(move || Self::tick(&bar, &done, &stop)));
        }
        this
    }

    /// The counter of bytes that the work advances.
    pub(crate) fn done(&self) -> &Arc<AtomicU64> {
        &self.done
    }

    fn tick(bar: &ProgressBar, done: &AtomicU64, stop: &AtomicU64) {
        let started = std::time::Instant::now();
        let style = "{bar:30} {bytes}/{total_bytes} {binary_bytes_per_sec} {eta}";
        bar.set_style(ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()));
        while stop.load(Ordering::Relaxed) == 0 {
            std::thread::park_timeout(Self::PERIOD);
            if started.elapsed() >= Self::DELAY {
                SHOWN.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| bar.clone());
                bar.set_draw_target(ProgressDrawTarget::stderr());
                bar.set_position(done.load(Ordering::Relaxed));
            }
        }
    }

    pub(crate) fn finish(self) {
        self.stop.store(1, Ordering::Relaxed);
        if let Some(ticker) = self.ticker {
            ticker.thread().unpark();
            // The bar is decoration; a panic in it has printed itself.
            let _ = ticker.join();
        }
        *SHOWN.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.bar.finish_and_clear();
    }
}
