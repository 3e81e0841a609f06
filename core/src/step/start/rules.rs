//! Rules: each has a name, the reason why it exists, and can be left out to see what it is worth.
//!
//! `python -m bench rules` leaves out one after the other; docs/explanation/rules.md has what it found.

use serde::Deserialize;

/// Defines rules: `Variant "name" "why"`.
macro_rules! rules {
    ($($variant:ident $name:literal $why:literal,)*) => {
        /// A rule of the step; [`Rule::ALL`] says why each exists.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[expect(missing_docs, reason = "the reason stands in ALL")]
        #[repr(u8)]
        pub enum Rule { $($variant,)* }

        impl Rule {
            /// Name of each, and why it exists.
            pub const ALL: &'static [(&'static str, &'static str)] = &[$(($name, $why)),*];

            const EVERY: &'static [Self] = &[$(Self::$variant),*];
        }
    };
}

rules! {
    // Counting and harm.
    Flood "flood" "A full path loses at once; one flight that loses a tenth of its segments is enough.",
    BesideDefault "beside_default" "Loss that only the default's explains needs the default's loss of now.",
    BrakeExplained "brake_explained" "Edges brake what loses, also where the default loses as much.",
    WornCounts "worn_counts" "What comes later must be able to change a count.",
    // Judging a trial.
    HalfWhenClean "half_when_clean" "Half as many flights show as much where none of them lost anything.",
    TrainsProve "trains_prove" "What sharp trains showed before needs a quarter of the flights.",
    JudgedTogether "judged_together" "Borrowers with few connections would wait for days alone.",
    ByChance "by_chance" "Medians of few flights differ by chance: an unclear trial goes on.",
    CarriedDecides "carried_decides" "What the path carried says more than times, which differ by a third.",
    UnseenStep "unseen_step" "A step that nothing shows would stay on trial.",
    // Proving.
    FewReach "few_reach" "Few connections may be one host's; they prove no more than trains.",
    WellFloor "well_floor" "What started well without loss was there, whatever polls show.",
    FallForgets "fall_forgets" "A collapsed share is followed at once.",
    RiseForgets "rise_forgets" "A share that doubled is followed at once; it leads to a trial only.",
    Borrow "borrow" "A path without evidence of its own starts as its neighbours can.",
    Shared "shared" "Trains do not show who else is on the path; what is carried does.",
    SharedByLoss "shared_by_loss" "Flights that all lose show nothing of what was carried.",
    SlowPathFall "slow_path_fall" "What all were delivered once was there; less may be lack of traffic.",
    Trains "trains" "First segments show what the path carries before anything is given.",
    SharpTrains "sharp_trains" "Jitter and clocks blur trains; what is blurred bounds nothing.",
    TrainHistory "train_history" "A path's rate differs by a tenth from round to round by itself.",
    // The end of a trial.
    EndFarBelow "end_far_below" "A trial far below what is known now costs hours.",
    EndBeyondTrains "end_beyond_trains" "A trial beyond what trains show now only does harm.",
    NeverSlower "never_slower" "No start may take longer than the default's did.",
    GiveCarried "give_carried" "All get the part of a trial that the path carried.",
    // Falls.
    FallToProved "fall_to_proved" "What is in use follows what connections met.",
    FallToCarried "fall_to_carried" "What is in use follows what the path carried of it.",
    FallToTrains "fall_to_trains" "What is in use follows what trains show, though every flight may lose.",
    CutToCarried "cut_to_carried" "After harm what was carried is known at once; halves would cost rounds.",
    CutToDelivered "cut_to_delivered" "In a flood no flight shows what was carried; polls do.",
    CutDeeper "cut_deeper" "Each round of loss in spite of a cut costs.",
    CutAll "cut_all" "Loss in spite of a cut to a half: the path is another.",
    CutLessWithTrains "cut_less_with_trains" "What trains show is not far from what the path carries.",
    DropIdle "drop_idle" "What carries less than the default slows connections down.",
    // The ceiling.
    HoldDoubles "hold_doubles" "What fails again within a day is tried half as often.",
    ForgetMet "forget_met" "A share that doubled after harm is another path's.",
    ForgetTrains "forget_trains" "Trains that show more for two rounds are another path's.",
    Halves "halves" "After a hold the ceiling is approached by halves.",
    // Rises.
    Steps "steps" "Connections that never met the path show a lower bound only.",
    MetIsNoLimit "met_is_no_limit" "Few connections meet the path within their lives; a collapsed window says little.",
    FirstStep "first_step" "The default reached a lower bound on its way up; what is no faster is slower.",
    StepWithinTogether "step_within_together" "Beside others whoever is faster takes from them, and seems to gain.",
    PathWithin "path_within" "What one was given says nothing of all at once.",
    BrakeStops "brake_stops" "Nothing more is tried while an edge brakes.",
    Damping "damping" "A value that flaps is held back (RFC 2439).",
    MoreOfFew "more_of_few" "A large part of few connections soon shows what a trial asks.",
}

/// Rules in force: all, but for those that a bench leaves out.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(try_from = "Vec<String>")]
pub struct Rules {
    without: u64,
}

const _: () = assert!(Rule::EVERY.len() <= 64);

impl Rules {
    pub(super) fn on(self, rule: Rule) -> bool {
        self.without & (1 << rule as u8) == 0
    }
}

impl TryFrom<Vec<String>> for Rules {
    type Error = String;

    fn try_from(names: Vec<String>) -> Result<Self, String> {
        let mut rules = Self::default();
        for name in names {
            let at = Rule::ALL.iter().position(|&(own, _)| own == name);
            rules.without |= 1 << at.ok_or_else(|| format!("no rule is called {name}"))?;
        }
        Ok(rules)
    }
}
