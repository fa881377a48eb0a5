// Hints under the pointer, and what stands out among the lanes. Nothing else; without it the page says the same.
(() => {
  document.documentElement.dataset.ready = '1';
  const tip = document.getElementById('tip');
  const show = (target, x, y) => {
    tip.textContent = target.getAttribute('data-t');
    tip.hidden = false;
    const width = tip.offsetWidth, height = tip.offsetHeight;
    tip.style.left = Math.max(8, Math.min(x + 14, innerWidth - width - 8)) + 'px';
    tip.style.top = (y + 18 + height > innerHeight ? Math.max(8, y - height - 12) : y + 18) + 'px';
  };
  const marked = (event) => event.target.closest && event.target.closest('[data-t]');
  document.addEventListener('pointermove', (event) => {
    const target = marked(event);
    if (target) show(target, event.clientX, event.clientY); else tip.hidden = true;
  });
  document.addEventListener('pointerleave', () => { tip.hidden = true; });
  document.addEventListener('focusin', (event) => {
    const target = marked(event);
    if (!target) return;
    const box = target.getBoundingClientRect();
    show(target, box.right, box.top);
  });
  document.addEventListener('focusout', () => { tip.hidden = true; });
  document.addEventListener('keydown', (event) => { if (event.key === 'Escape') tip.hidden = true; });

  const lanes = document.getElementById('lanes');
  if (!lanes) return;
  const press = (buttons, pressed) => buttons.forEach((button) => button.setAttribute('aria-pressed', button === pressed));
  const choices = [...lanes.querySelectorAll('[data-choose]')];
  choices.forEach((button) => button.addEventListener('click', () => {
    lanes.dataset.show = button.dataset.choose;
    press(choices, button);
  }));
  const phases = [...lanes.querySelectorAll('[data-phase]')];
  let alone = null;
  phases.forEach((button) => button.addEventListener('click', () => {
    alone = alone === button ? null : button;
    press(phases, alone);
    lanes.classList.toggle('alone', alone !== null);
    lanes.querySelectorAll('.calls .on').forEach((path) => path.classList.remove('on'));
    if (alone) lanes.querySelectorAll('.calls .' + alone.dataset.phase).forEach((path) => path.classList.add('on'));
  }));
})();
