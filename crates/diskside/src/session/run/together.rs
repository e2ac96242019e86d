//! The parts of a request on both sides: at once or one after another, and their results put together.

use super::job::{Done, Job};
use super::measuring::Measuring;
use super::ran::{Ran, RanPart};
use super::{device, host};
use crate::session::error::SessionError;
use crate::session::segments::Segment;
use diskside_dispatch::{Decision, Observation, Plan, Side};
use diskside_engine::PutTogether;
use diskside_host::own_thread;
use diskside_io::request::run_here;
use std::io::Write;
use std::ops::Range;
use std::time::Duration;

impl Job<'_> {
    /// The device's parts go out first; the host's run here meanwhile.
    pub(super) async fn run_together(
        &self,
        segments: Vec<Segment>,
        probe: Option<(Range<u64>, Side)>,
        plan: Plan,
    ) -> Result<Vec<Done>, SessionError> {
        let runs_on = |side: Side| segments.iter().any(|segment| segment.side == side);
        let [here, there] = Side::ALL.map(|side| if runs_on(side) { self.enter(side) } else { None });
        let mut calls = Vec::new();
        for segment in &segments {
            calls.push(match segment.side {
                Side::Device => Some(device::start(self, &segment.range).await?),
                Side::Host => None,
            });
        }
        let extra = match (&probe, plan, segments.first()) {
            (None, Plan::Both, Some(all)) => Some(device::start(self, &all.range).await?),
            _ => None,
        };
        // What computes here follows at once.
        if runs_on(Side::Host) || probe.is_some() {
            own_thread().await;
        }
        let measuring = self.measure_device(probe.as_ref());
        let ran = self.finish_together(&segments, calls, probe.as_ref()).await;
        let done = Measuring::end(measuring, ran).await?;
        done.iter().for_each(|done| self.advance(done));
        let (on_host, at_device): (Vec<_>, Vec<_>) =
            done.iter().map(|done| done.observation).partition(|part| part.side == Side::Host);
        on_host.iter().for_each(|part| self.learn(part, here.as_ref()));
        // They ran at once, and each had to share the device with the others.
        if let Some(together) = Observation::together(&at_device) {
            self.learn(&together, there.as_ref());
        }
        if let Some(call) = extra
            && let Ok(probe) = device::finish(self, call).await
        {
            self.learn_probe(&probe.observation, None);
        }
        Ok(done)
    }

    /// Runs the host's parts and waits for the device's, which are under way.
    async fn finish_together(
        &self,
        segments: &[Segment],
        calls: Vec<Option<device::Started>>,
        probe: Option<&(Range<u64>, Side)>,
    ) -> Result<Vec<Done>, SessionError> {
        let mut done: Vec<Option<Done>> = segments.iter().map(|_| None).collect();
        for (slot, segment) in done.iter_mut().zip(segments).filter(|(_, segment)| segment.side == Side::Host) {
            *slot = Some(host::run(self, &segment.range, None)?);
        }
        self.measure_host(probe);
        for (slot, call) in done.iter_mut().zip(calls) {
            if let Some(call) = call {
                *slot = Some(device::finish(self, call).await?);
            }
        }
        Ok(done.into_iter().flatten().collect())
    }

    /// Runs a part at the device meanwhile, if that is what is to be measured.
    fn measure_device(&self, probe: Option<&(Range<u64>, Side)>) -> Option<Measuring> {
        let (range, _) = probe.filter(|(_, side)| *side == Side::Device)?;
        Some(Measuring::start(self, range.clone()))
    }

    /// Runs a part here, if that is what is to be measured. The request does not depend on it.
    fn measure_host(&self, probe: Option<&(Range<u64>, Side)>) {
        let Some((range, _)) = probe.filter(|(_, side)| *side == Side::Host) else { return };
        let alone = Job { grid: None, frames: false, ..self.clone() };
        let present = self.enter(Side::Host);
        if let Ok(probe) = host::run(&alone, range, None) {
            self.learn_probe(&probe.observation, present.as_ref());
        }
    }

    /// One part after another, their output written as it comes.
    pub(super) fn run_in_order(
        &self,
        segments: &[Segment],
        probe: Option<&(Range<u64>, Side)>,
        out: &mut (dyn Write + Send),
    ) -> Result<Vec<Done>, SessionError> {
        let measuring = self.measure_device(probe);
        let run = |segment: &Segment| {
            let present = self.enter(segment.side);
            let done = match segment.side {
                Side::Host => host::run(self, &segment.range, Some(&mut *out))?,
                Side::Device => device::stream(self, &segment.range, out)?,
            };
            self.learn(&done.observation, present.as_ref());
            self.advance(&done);
            Ok(done)
        };
        let all = run_here(Measuring::end(measuring, segments.iter().map(run).collect()))?;
        self.measure_host(probe);
        Ok(all)
    }

    /// The result of all parts, in the order of the input.
    fn put_together(&self, done: &mut [Done]) -> Result<PutTogether, SessionError> {
        let as_it_is = |result| PutTogether { result, fold: Duration::ZERO };
        if let [only] = done
            && (!self.frames || self.hands_on)
        {
            return Ok(as_it_is(std::mem::take(&mut only.result)));
        }
        if self.hands_on {
            return Ok(as_it_is(done.iter().map(|done| &done.result[..]).collect::<Vec<_>>().concat()));
        }
        let engine = self.file.inner.session.engine();
        if self.frames {
            let parts: Vec<(&str, &[u8])> = done.iter().map(|done| (self.name(), &done.result[..])).collect();
            return Ok(engine.fold_frames(&self.call(Vec::new()), &parts)?);
        }
        // In a part no record may begin: then there is nothing to fold.
        let has_pieces = |done: &&Done| done.part.chunks != Some(0);
        let name = |part: &RanPart| format!("bytes {}..{} of {}", part.range.start, part.range.end, part.name);
        let named: Vec<(String, &[u8])> =
            done.iter().filter(has_pieces).map(|done| (name(&done.part), &done.result[..])).collect();
        let named: Vec<(&str, &[u8])> = named.iter().map(|(name, result)| (name.as_str(), *result)).collect();
        Ok(engine.fold(&self.call(Vec::new()), &named)?)
    }

    /// One result of all parts.
    pub(super) fn gather(
        &self,
        mut done: Vec<Done>,
        decision: Option<Decision>,
        written: bool,
    ) -> Result<Ran, SessionError> {
        let mut ran = Ran::default();
        if !written {
            let PutTogether { result, fold } = self.put_together(&mut done)?;
            (ran.result, ran.fold) = (result, fold);
        }
        for done in done {
            ran.refusals.extend(done.refused.map(|why| (self.name().to_owned(), why)));
            ran.input_bytes += done.part.input_bytes;
            ran.sent_bytes += done.moved.0;
            ran.received_bytes += done.moved.1;
            ran.add_log(done.log);
            ran.parts.push(done.part);
        }
        ran.decisions.extend(decision.map(|decision| (self.name().to_owned(), decision)));
        Ok(ran)
    }
}
