document.querySelectorAll('[data-late]').forEach(place => setTimeout(() => {
  const text = document.createElement('p'); text.id = 'late'; text.className = 'notice';
  text.textContent = place.dataset.late; place.append(text); }, 400));
document.querySelectorAll('[data-needs]').forEach(button => {
  const box = document.querySelector(button.dataset.needs);
  const follow = () => { button.disabled = !box.checked; };
  box.addEventListener('change', follow); follow(); });
