//! Progress of long work, on standard error.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A bar on standard error for work that takes long; nothing when that is no terminal.
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

    /// Of work of this length, whose output goes to standard output while it goes on, or not: to a terminal it would go through
    /// the bar.
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
        self.bar.finish_and_clear();
    }
}
