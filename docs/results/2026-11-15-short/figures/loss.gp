set terminal svg size 1080,540 dynamic noenhanced background rgb 'white' font 'sans,13'
set output 'loss.svg'
set title 'Loss over time at 100mbit (composed of losses and step times)'
set xlabel 'seconds'
set ylabel 'loss, mean of five steps'
set grid
set key outside right top Left reverse samplen 3
set logscale x 10
plot 'loss.dat' index 0 using 1:2 with lines linewidth 2 dashtype 1 linecolor rgb '#D55E00' title 'DDP', \
  'loss.dat' index 1 using 1:2 with lines linewidth 2 dashtype 2 linecolor rgb '#0072B2' title 'laconic, raw', \
  'loss.dat' index 2 using 1:2 with lines linewidth 2 dashtype 3 linecolor rgb '#009E73' title 'laconic, 4 bits'
set terminal pngcairo size 1080,540 noenhanced background rgb 'white' font 'sans,11'
set output 'loss.png'
replot
