"""Arithmetic as formulas: functions of f32 and f64, quotients, divisions."""
